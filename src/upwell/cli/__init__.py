"""The commands of `upwell`, which leave the logic to other packages."""
