"""Our own MCP tools: reading on, and remembering on purpose."""
