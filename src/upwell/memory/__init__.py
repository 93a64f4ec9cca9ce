"""Stores memories, and recalls them from stores, imported files, notes and other programs."""
