"""The MCP gateway: one server in front, any number behind, and no changes on the way except the
intended ones."""
