"""Recall from other programs: MCP memory servers and qmd."""
