"""What can be made shorter before anything is left out."""
