"""MCP on the wire: JSON kept as the bytes that came, lines, peers, and child processes."""
