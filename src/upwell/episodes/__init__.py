"""Episodes: conclusions from past sessions, and the keys of situations in which they surface."""
