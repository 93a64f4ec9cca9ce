"""The commands of `upwell`. The logic is in other packages."""
