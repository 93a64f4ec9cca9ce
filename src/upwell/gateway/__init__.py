"""The MCP gateway: one server in front, any number behind, and nothing changed on the way but
what is meant to be."""
