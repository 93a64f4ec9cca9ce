"""The embedded store keeps memories and their indexes in SQLite."""
