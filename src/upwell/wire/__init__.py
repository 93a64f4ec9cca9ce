"""MCP on the wire: raw JSON, lines, JSON-RPC peers, HTTP links and child processes."""
