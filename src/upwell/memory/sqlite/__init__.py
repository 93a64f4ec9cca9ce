"""The embedded store: memories in SQLite, with their indexes."""
