"""Learning from feedback and observed use: thresholds, demotions, budgets."""
