"""The MCP gateway: one server in front of any number of others. Messages pass through unchanged,
except where a change is intended."""
