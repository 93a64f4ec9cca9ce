"""One MCP server in its place: a relay between the agent and the server (`upwell wrap`)."""
