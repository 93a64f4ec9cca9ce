"""upwell's own MCP tools: reading originals, searching and writing memories, feedback."""
