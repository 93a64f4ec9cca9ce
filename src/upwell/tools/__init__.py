"""upwell's own MCP tools: reading originals on, searching and writing memories, feedback."""
