"""JSON: parse, split, score, select, and write documents that stay valid."""
