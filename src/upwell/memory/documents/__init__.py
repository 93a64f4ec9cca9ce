"""Imported files as memories: scanned, cut into chunks, cited."""
