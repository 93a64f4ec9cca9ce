"""Finds past sessions of every agent by question, by error and by file."""
