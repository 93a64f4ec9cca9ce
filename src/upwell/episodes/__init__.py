"""Episodes: conclusions of past sessions, and the keys of the situations in which they surface."""
