"""Imported files as memories: scanning, splitting into chunks, citing."""
