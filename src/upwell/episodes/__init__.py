"""Episodes: conclusions from past sessions, and the situations in which they surface."""
