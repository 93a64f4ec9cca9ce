"""Documentation: splitting into sections, indexing, ranking, scoring, and quoting passages."""
