"""Past sessions of every agent, found by question, by error and by file."""
