"""What feedback and observed use change: thresholds, demotions, budgets."""
