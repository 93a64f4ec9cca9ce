"""Recall over other programs: MCP memory servers and qmd."""
