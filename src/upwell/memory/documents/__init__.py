"""Imported files as memories: scanning, cutting into chunks, citing."""
