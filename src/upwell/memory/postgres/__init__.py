"""The store of a team: memories in PostgreSQL."""
