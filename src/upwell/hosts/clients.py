"""The files in which agents keep their MCP servers: a literal list, one entry each.

Sources: the agents' own documentation as of 2026-09. Files of a project are a second list: they are
looked at only when the user asks, since a cloned repository must not configure anything by itself.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upwell.ground.errors import ConfigError
from upwell.ground.names import OWN_SERVER
from upwell.hosts.base import Where
from upwell.hosts.edits import JSON, TOML, Format
from upwell.hosts.entries import Entry, read_entry
from upwell.hosts.opencode import opencode_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFile:
    """One file. `tables` are where its servers stand; upwell goes into the first. `folder` is the
    agent's, whose being there says that the agent is. `project`: the folder of a project whose file
    this is, "" for the user's own. `shape` is how an entry says its program: `typed` with its
    `type`, `listed` with program and arguments in one list."""

    name: str
    agent: str
    file: Callable[[Where], Path]
    folder: Callable[[Where], Path] | None = None
    tables: tuple[tuple[str, ...], ...] = (("mcpServers",),)
    format: Format = JSON
    project: str = ""
    shape: str = ""
    todo: str = "start it anew"

    def path(self, where: Where) -> Path:
        return self.file(where)

    def present(self, where: Where) -> bool:
        if self.file(where).is_file():
            return True
        return self.folder is not None and self.folder(where).is_dir()

    def entries(self, text: str) -> list[Entry]:
        """The servers in `text`, in its order.

        Raises:
            ConfigError: it cannot be read as what it should be.
        """
        return [entry for _, entry, _ in self._placed(text)]

    def added(self, text: str, where: Where) -> str:
        placed = self._placed(text)
        moved = {
            table: [entry.name for place, entry, _ in placed if place == table and entry.table]
            for table in self.tables
        }
        if self.project and not any(moved.values()):
            return text
        has_ours = any(entry.ours for _, entry, _ in placed)
        if any(e.name == OWN_SERVER and not (e.ours or e.table) for _, e, _ in placed):
            raise ConfigError(
                f"it has a server {OWN_SERVER!r} that is another program",
                hint="rename that one first; it was not touched",
            )
        for table, names in moved.items():
            if names:
                text = self.format.without(text, table, names)
        if has_ours:
            return text
        return self.format.put(text, self.tables[0], OWN_SERVER, self._ours(where))

    def removed(self, text: str, olds: Sequence[str] = ()) -> str:
        placed = self._placed(text)
        for table, entry, _ in placed:
            if entry.ours and entry.name == OWN_SERVER:
                text = self.format.without(text, table, [entry.name])
        for old in olds:
            for table, entry, raw in self._placed(old):
                here = [e.name for place, e, _ in self._placed(text) if place == table]
                if entry.table and entry.name not in here:
                    text = self.format.put(text, table, entry.name, raw)
        left = self.format.value(text)
        return "" if not olds and left in ({}, {self.tables[0][0]: {}}) else text

    def _placed(self, text: str) -> list[tuple[tuple[str, ...], Entry, Any]]:
        """Each server with the table it is in and what stands there."""
        found = []
        root = self.format.value(text)
        for table in self.tables:
            servers: Any = root
            for key in table:
                servers = servers.get(key, {}) if isinstance(servers, dict) else None
            if not isinstance(servers, dict):
                raise ConfigError(
                    f"its {'.'.join(table)} is not a table",
                    hint="mend it first; it was not touched",
                )
            folder = Path(self.project or table[1]) if self.project or len(table) > 1 else None
            for name, raw in servers.items():
                found.append((table, read_entry(name, raw, self.agent, folder), raw))
        return found

    def _ours(self, where: Where) -> dict[str, Any]:
        program, *args = where.command
        home = where.environment.get("UPWELL_HOME", "")
        env = {"UPWELL_HOME": home} if home else {}
        if self.shape == "listed":
            entry = {"type": "local", "command": [program, *args], "environment": env}
        else:
            kind = {"type": "stdio"} if self.shape == "typed" else {}
            entry = {**kind, "command": program, "args": args, "env": env}
        return {key: value for key, value in entry.items() if value}


def clients(project: Path | None = None) -> dict[str, ServerFile]:
    """The user's files by agent; with `project`, also those of that folder, and Claude Code's
    servers for that folder only."""
    here = (("projects", str(project), "mcpServers"),) if project else ()
    found = [_claude((("mcpServers",), *here)), *_USERS]
    if project:
        found += [
            ServerFile(
                name=f"{agent}:{project}",
                agent=agent,
                file=_fixed(project / file),
                tables=((key,),),
                format=TOML if file.endswith(".toml") else JSON,
                project=str(project),
                shape=shape,
            )
            for agent, file, key, shape in _PROJECTS
        ]
    return {client.name: client for client in found}


def _claude(tables: tuple[tuple[str, ...], ...]) -> ServerFile:
    return ServerFile(
        name="claude",
        agent="claude",
        file=lambda where: where.base("CLAUDE_CONFIG_DIR", "") / ".claude.json",
        folder=lambda where: where.base("CLAUDE_CONFIG_DIR", ".claude"),
        tables=tables,
        shape="typed",
    )


def _fixed(path: Path) -> Callable[[Where], Path]:
    return lambda where: path


def _applications(where: Where) -> Path:
    """Where programs with windows keep their settings."""
    if sys.platform == "darwin":
        return where.folder / "Library" / "Application Support"
    return where.base("XDG_CONFIG_HOME", ".config")


def _opencode_file(where: Where) -> Path:
    if named := where.environment.get("OPENCODE_CONFIG"):
        return Path(named).expanduser()
    commented = opencode_folder(where) / "opencode.jsonc"
    return commented if commented.is_file() else commented.with_suffix(".json")


_USERS: Sequence[ServerFile] = (
    ServerFile(
        name="claude-desktop",
        agent="claude-desktop",
        file=lambda where: _applications(where) / "Claude" / "claude_desktop_config.json",
        folder=lambda where: _applications(where) / "Claude",
    ),
    ServerFile(
        name="cursor",
        agent="cursor",
        file=lambda where: where.folder / ".cursor" / "mcp.json",
        folder=lambda where: where.folder / ".cursor",
    ),
    ServerFile(
        name="vscode",
        agent="vscode",
        file=lambda where: _applications(where) / "Code" / "User" / "mcp.json",
        folder=lambda where: _applications(where) / "Code" / "User",
        tables=(("servers",),),
        shape="typed",
    ),
    ServerFile(
        name="codex",
        agent="codex",
        file=lambda where: where.base("CODEX_HOME", ".codex") / "config.toml",
        folder=lambda where: where.base("CODEX_HOME", ".codex"),
        tables=(("mcp_servers",),),
        format=TOML,
    ),
    ServerFile(
        name="gemini",
        agent="gemini",
        file=lambda where: where.base("GEMINI_CLI_HOME", "") / ".gemini" / "settings.json",
        folder=lambda where: where.base("GEMINI_CLI_HOME", "") / ".gemini",
    ),
    ServerFile(
        name="opencode",
        agent="opencode",
        file=_opencode_file,
        folder=opencode_folder,
        tables=(("mcp",),),
        shape="listed",
    ),
)
_PROJECTS: Sequence[tuple[str, str, str, str]] = (
    ("claude", ".mcp.json", "mcpServers", "typed"),
    ("cursor", ".cursor/mcp.json", "mcpServers", ""),
    ("vscode", ".vscode/mcp.json", "servers", "typed"),
    ("codex", ".codex/config.toml", "mcp_servers", ""),
    ("gemini", ".gemini/settings.json", "mcpServers", ""),
    ("opencode", "opencode.json", "mcp", "listed"),
)
