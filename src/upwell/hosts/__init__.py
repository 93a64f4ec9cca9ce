"""The agents that upwell supports. Each has a record in its own file.

To add an agent, follow "Add an agent host" in CONTRIBUTING.md.
"""

import fnmatch
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from upwell.ground.errors import UsageError
from upwell.ground.secrets.redact import redacted_start
from upwell.ground.text.safe import visible
from upwell.hosts import claude, codex, copilot, cursor, gemini, opencode, vscode
from upwell.hosts.base import Host
from upwell.hosts.servers import ServerFile

HOSTS: Mapping[str, Host] = {
    host.name: host
    for host in (
        claude.HOST,
        codex.HOST,
        gemini.HOST,
        cursor.HOST,
        copilot.HOST,
        vscode.HOST,
        opencode.HOST,
    )
}
"""The hosts, keyed by name, in the order in which users see them."""
MAX_CLIENT_CHARS = 40


def host_named(name: str) -> Host:
    """Return the host with this name.

    Raises:
        UsageError: there is no such host.
    """
    if name not in HOSTS:
        raise UsageError(f"{name[:40]!r} is not a known host", hint=f"one of {', '.join(HOSTS)}")
    return HOSTS[name]


@lru_cache(maxsize=256)
def host_of_client(name: str) -> str:
    """The name of the host whose MCP client introduces itself as `name`. For an unknown client,
    `name` itself on one line, without secrets, truncated to `MAX_CLIENT_CHARS`.
    """
    cleaned = " ".join(visible(redacted_start(name, MAX_CLIENT_CHARS)).split())
    lower = cleaned.lower()
    for host in HOSTS.values():
        if any(fnmatch.fnmatchcase(lower, pattern) for pattern in host.clients):
            return host.name
    return cleaned[:MAX_CLIENT_CHARS]


def server_files(project: Path | None = None) -> dict[str, ServerFile]:
    """The files that configure MCP servers, keyed by name. `project` adds the files of that
    project."""
    of_hosts = [host.servers for host in HOSTS.values() if host.servers]
    files = {file.name: file for file in (*of_hosts, claude.DESKTOP_SERVERS)}
    if project:
        files |= {file.name: file for own in of_hosts for file in own.for_project(project)}
    return files
