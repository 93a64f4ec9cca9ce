"""Learns thresholds, demotions and budgets from feedback and observed use."""
