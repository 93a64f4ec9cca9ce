"""What upwell did, counted: decisions, what became of them, what was saved."""
