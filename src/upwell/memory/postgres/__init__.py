"""A team's store: memories in PostgreSQL."""
