"""Claude Desktop, an MCP client without hooks: upwell needs only the file that lists its
servers."""

from upwell.hosts.servers import ServerFile, applications_folder

SERVERS = ServerFile(
    name="claude-desktop",
    agent="claude-desktop",
    file=lambda user: applications_folder(user) / "Claude" / "claude_desktop_config.json",
    folder=lambda user: applications_folder(user) / "Claude",
)
