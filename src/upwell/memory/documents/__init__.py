"""Imported files as memories: scanning, splitting into sections and passages, citing."""
