"""Episodes: conclusions of past sessions, and the exact keys at which each one speaks."""
