"""The files in which agents configure MCP servers: reads their servers, as tables of `config.toml`,
and adds and removes upwell.

A project's files are changed only if the user asks for it: a cloned repository must not be able to
configure anything by itself.
"""

import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from upwell.ground.errors import ConfigError
from upwell.ground.names import OWN_SERVER
from upwell.hosts.edits import JSON, TOML, EditFormat
from upwell.hosts.installation import Installation

PlainUrl = Literal["http", "sse"]
PLACEHOLDERS = re.compile(r"\$\{[^}]*\}?|\{(?:env|file):[^}]*\}?")
"""Placeholders that the agent fills in from the environment, a file or its own state."""
GEMINI_PLACEHOLDERS = re.compile(r"\$\w+|" + PLACEHOLDERS.pattern)
OWN_TOOLS = "it has upwell's own tools"
_IGNORED_KEYS = frozenset(
    "name description gallery version trust autoApprove alwaysAllow timeout enabled disabled "
    "startup_timeout_sec startup_timeout_ms tool_timeout_sec".split()
)
_KNOWN_KEYS = frozenset(
    "type command args env environment cwd url httpUrl serverUrl headers http_headers".split()
)
_HTTP_TYPES = frozenset({"http", "streamable-http", "streamableHttp", "remote"})


class ServerEntry(Struct, frozen=True):
    """A server in an agent's file. `table` is the content of `[server.NAME]`. It is empty if the
    server has to stay in the agent's file; `left` then gives the reason. `ours`: the server is
    upwell's gateway.
    """

    name: str
    table: Mapping[str, Any] = field(default_factory=dict)
    left: str = ""
    ours: bool = False


def is_upwell(raw: Mapping[str, Any]) -> bool:
    """True if the entry runs `upwell serve`, directly or through a launcher."""
    words = [Path(word).name for word in words_of(raw)]
    return ("upwell", "serve") in pairwise(words)


def has_only_tools(raw: Mapping[str, Any]) -> bool:
    """True if the entry runs `upwell serve --tools`."""
    return is_upwell(raw) and "--tools" in words_of(raw)


def wrapped_words(raw: Mapping[str, Any]) -> list[str]:
    """The command line behind `upwell wrap`. Empty if the entry is not wrapped, or if it is a
    server at an address."""
    words = words_of(raw)
    names = [Path(word).name for word in words]
    pairs = enumerate(zip(names, words[1:], strict=False))
    start = next((at for at, pair in pairs if pair == ("upwell", "wrap")), None)
    if start is None or (start > 0 and words[start - 1] != "-m"):
        return []
    rest = words[start + 2 :]
    while rest and rest[0] != "--":
        rest = rest[1:] if "=" in rest[0] else rest[2:]
    return rest[1:]


def words_of(raw: Mapping[str, Any]) -> list[str]:
    """The program and its arguments. Empty if there is none, or if they are not strings."""
    command, args = raw.get("command"), raw.get("args") or []
    if not isinstance(args, list):
        return []
    words = [*(command if isinstance(command, list) else [command]), *args]
    return words if command and all(isinstance(word, str) for word in words) else []


def args_fault(raw: Mapping[str, Any]) -> str:
    """Why the arguments of a program cannot be used, or ""."""
    args = raw.get("args") or []
    if not isinstance(args, list):
        return "its args is not a list"
    are_strings = all(isinstance(word, str) for word in args)
    return "" if are_strings else "its args contain a value that is not a string"


def url_of(raw: Mapping[str, Any]) -> Any:
    return raw.get("url") or raw.get("httpUrl") or raw.get("serverUrl")


def _program(raw: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    words, env = words_of(raw), _strings(raw.get("env") or raw.get("environment"))
    if not words or env is None or raw.get("type") not in (None, "stdio", "local"):
        return {}
    cwd = raw.get("cwd") or ("." if folder else "")
    if folder and cwd:
        cwd = str((folder / cwd).resolve())
    table = {"command": words[0], "args": words[1:], "env": env, "cwd": cwd}
    return {key: value for key, value in table.items() if value}


def _http_server(raw: Mapping[str, Any], plain_url: PlainUrl) -> dict[str, Any]:
    type_ = raw.get("type") or ("http" if raw.get("httpUrl") else plain_url)
    headers, url = _strings(raw.get("headers") or raw.get("http_headers")), url_of(raw)
    is_url = isinstance(url, str) and url.startswith(("http://", "https://"))
    if not is_url or headers is None or type_ not in _HTTP_TYPES | {"sse"}:
        return {}
    table = {"url": url, "headers": headers, "transport": "sse" if type_ == "sse" else ""}
    return {key: value for key, value in table.items() if value}


def _strings(value: Any) -> dict[str, str] | None:
    if not value:
        return {}
    if not isinstance(value, Mapping):
        return None
    only_scalars = all(isinstance(item, str | int) for item in value.values())
    return {str(key): str(item) for key, item in value.items()} if only_scalars else None


def _first_match(value: Any, pattern: re.Pattern[str]) -> str:
    if isinstance(value, str):
        match = pattern.search(value)
        return match.group() if match else ""
    parts = value.values() if isinstance(value, Mapping) else value
    if isinstance(parts, str | int | float | None):
        return ""
    return next(filter(None, (_first_match(part, pattern) for part in parts)), "")


Table = tuple[str, ...]
Shape = Literal["plain", "typed", "listed"]


class ServerFile(Struct, frozen=True, kw_only=True):
    """A file in which an agent configures its MCP servers.

    - `folder` is the agent's own folder, which exists if the agent is installed: that of the file,
      unless it is given.
    - `tables` are the tables that hold servers. upwell's entry goes into the first.
    - `shape` is the form of an entry: `typed` entries have a `type`, and `listed` entries hold the
      program and its arguments in one list.
    - `project_file` is the file in a project's folder that lists the project's own servers.
      `holds_projects`: the user's file also holds servers of projects, under `projects` and the
      project's path.
    - `project` is the folder of the project that this file belongs to, or "" for the user's own
      file.
    - `leave` names servers that do not move to upwell.
    - `allowed` is the list, in a JSON file, of the only servers that the agent may use, if the user
      has made one.
    """

    agent: str
    file: Callable[[Installation], Path]
    folder: Callable[[Installation], Path] | None = None
    tables: tuple[Table, ...] = (("mcpServers",),)
    format: EditFormat = JSON
    shape: Shape = "plain"
    placeholders: re.Pattern[str] = PLACEHOLDERS
    plain_url: PlainUrl = "http"
    project_file: str = ""
    holds_projects: bool = False
    project: str = ""
    leave: Collection[str] = ()
    allowed: Table = ()
    next_step: str = "restart the agent"

    @property
    def name(self) -> str:
        return f"{self.agent}:{self.project}" if self.project else self.agent

    def for_project(self, folder: Path) -> "list[ServerFile]":
        """The files with servers for the project in `folder`. The user's own file is among them if
        it `holds_projects`.
        """
        files = []
        if self.holds_projects:
            tables = (*self.tables, ("projects", str(folder), self.tables[0][0]))
            files.append(replace(self, tables=tables))
        if self.project_file:
            path = folder / self.project_file
            of_project = replace(
                self,
                file=lambda installation: path,
                format=TOML if path.suffix == ".toml" else JSON,
                project=str(folder),
            )
            files.append(of_project)
        return files

    def path(self, installation: Installation) -> Path:
        return self.file(installation)

    def is_present(self, installation: Installation) -> bool:
        path = self.path(installation)
        folder = self.folder(installation) if self.folder else path.parent
        return path.is_file() or (not self.project and folder.is_dir())

    def entries(self, text: str) -> list[ServerEntry]:
        """The servers in `text`, table by table, in the order of the text.

        Raises:
            ConfigError: the file does not have the expected structure.
        """
        return [entry for _, entry, _ in self._entries(text)]

    def entry(self, name: str, raw: Any, folder: Path | None = None) -> ServerEntry:
        """Convert one server. `folder` is the project that the server belongs to."""
        if isinstance(raw, Mapping) and is_upwell(raw) and not has_only_tools(raw):
            return ServerEntry(name, left="it is upwell", ours=True)
        if left := self._left(name, raw):
            return ServerEntry(name, left=left)
        table = _http_server(raw, self.plain_url) if url_of(raw) else _program(raw, folder)
        return ServerEntry(name, table, "" if table else "it has no command or URL")

    def _left(self, name: str, raw: Any) -> str:
        """Why a server has to stay in the agent's file, or ""."""
        if name in self.leave:
            return "gateway.leave lists it"
        if not isinstance(raw, Mapping):
            return "its entry is not a table"
        if is_upwell(raw):
            return OWN_TOOLS
        if wrapped_words(raw):
            return "it stays where it is, behind `upwell wrap`"
        if raw.get("disabled") or raw.get("enabled") is False:
            return "it is switched off"
        known = _IGNORED_KEYS | _KNOWN_KEYS
        if unknown := [key for key, value in raw.items() if key not in known and value]:
            return f"upwell does not support {unknown[0]!r}"
        if placeholder := _first_match(raw, self.placeholders):
            return f"only the agent can fill in {placeholder}"
        return "" if url_of(raw) else args_fault(raw)

    def with_ours(self, text: str, installation: Installation) -> str:
        """`text` with upwell in the place of its servers, as version 0.2.0 wrote it."""
        entries = self._entries(text)
        if self.project and not any(entry.table for _, entry, _ in entries):
            return text
        for table in self.tables:
            if names := [entry.name for at, entry, _ in entries if at == table and entry.table]:
                text = self.format.without(text, table, names)
        if any(entry.ours for _, entry, _ in entries):
            return text
        return self.with_own_server(text, installation)

    def with_own_server(self, text: str, installation: Installation) -> str:
        """`text` with the server that `installation.command` runs, which the agent may use."""
        program, *args = installation.command
        home = installation.environment.get("UPWELL_HOME", "")
        server = {"command": program, "args": args, "env": {"UPWELL_HOME": home} if home else {}}
        text = self.format.put(text, self.tables[0], OWN_SERVER, self._raw(server))
        allowed = self._allowed(text)
        if not allowed or OWN_SERVER in allowed:
            return text
        return JSON.with_list(text, self.allowed, [OWN_SERVER, *allowed])

    def without_own_server(self, text: str, table: Table) -> str:
        text = self.format.without(text, table, [OWN_SERVER])
        allowed = self._allowed(text)
        if OWN_SERVER not in allowed:
            return text
        return JSON.with_list(text, self.allowed, [name for name in allowed if name != OWN_SERVER])

    def _allowed(self, text: str) -> list[Any]:
        value: Any = self.format.value(text) if self.allowed else None
        for key in self.allowed:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, list) else []

    def raw_entries(self, text: str, tables: Sequence[Table] = ()) -> list[tuple[Table, str, Any]]:
        """The servers as they are written, in these tables, or in all with those of projects.

        Raises:
            ConfigError: the file does not have the expected structure.
        """
        root = self.format.value(text)
        tables = tables or self._all_tables(text)
        return [(table, *item) for table in tables for item in _servers(root, table).items()]

    def has_ours(self, text: str) -> bool:
        """True if upwell is among the servers."""
        return any(entry.ours and entry.name == OWN_SERVER for _, entry, _ in self._entries(text))

    def moved(
        self, text: str, *, only: Callable[[Mapping[str, Any]], bool] = lambda table: True
    ) -> str:
        """The servers that may be moved, as tables of `config.toml`. `only` selects them by the
        content of `[server.NAME]`."""
        moved = ""
        for table, entry, raw in self._entries(text):
            if entry.table and only(entry.table):
                moved = self.format.put(moved, table, entry.name, raw)
        return moved

    def holding(self, servers: Mapping[str, Mapping[str, Any]]) -> str:
        """The text of a file that holds these servers of `config.toml`, like that of `moved()`."""
        text = ""
        for name, server in servers.items():
            text = self.format.put(text, self.tables[0], name, self._raw(server))
        return text

    def without_ours(self, text: str, moved: Sequence[str] = ()) -> str:
        edited = text
        for table, entry, _ in self._entries(text):
            if entry.ours and entry.name == OWN_SERVER:
                edited = self.without_own_server(edited, table)
        for servers in moved:
            for table, entry, raw in self._entries(servers, self._all_tables(servers)):
                if entry.name not in _servers(self.format.value(edited), table):
                    edited = self.format.put(edited, table, entry.name, raw)
        if edited == text:
            return text
        remaining = self.format.value(edited)
        return "" if not moved and remaining in ({}, {self.tables[0][0]: {}}) else edited

    def _entries(
        self, text: str, tables: Sequence[Table] = ()
    ) -> list[tuple[Table, ServerEntry, Any]]:
        entries = []
        for table, name, raw in self.raw_entries(text, tables or self.tables):
            folder = self.project or (table[1] if len(table) > 1 else "")
            entry = self.entry(name, raw, Path(folder) if folder else None)
            entries.append((table, entry, raw))
        return entries

    def _all_tables(self, text: str) -> list[Table]:
        """The tables of a file, or of a result of `moved()` from a run with a project."""
        projects = self.format.value(text).get("projects", {}) if self.holds_projects else {}
        of_projects = [("projects", folder, self.tables[0][0]) for folder in projects]
        return list(dict.fromkeys([*self.tables, *of_projects]))

    def _raw(self, server: Mapping[str, Any]) -> dict[str, Any]:
        """The agent's entry for a server of `config.toml`."""
        url, words = server.get("url"), [server.get("command", ""), *server.get("args", ())]
        env, cwd = server.get("env"), server.get("cwd")
        if url:
            sse = server.get("transport") == "sse"
            key = "httpUrl" if self.plain_url == "sse" and not sse else "url"
            has_type = self.shape == "typed" or (sse and self.plain_url != "sse")
            kind = "remote" if self.shape == "listed" else "sse" if sse else "http"
            headers = "http_headers" if self.format is TOML else "headers"
            entry = {
                "type": kind if has_type or self.shape == "listed" else "",
                key: url,
                headers: dict(server.get("headers", {})),
            }
        elif self.shape == "listed":
            entry = {"type": "local", "command": words, "environment": env, "cwd": cwd}
        else:
            kind = "stdio" if self.shape == "typed" else ""
            entry = {"type": kind, "command": words[0], "args": words[1:], "env": env, "cwd": cwd}
        return {key: value for key, value in entry.items() if value}


def _servers(root: Any, table: Table) -> Mapping[str, Any]:
    servers = root
    for key in table:
        servers = servers.get(key, {}) if isinstance(servers, dict) else None
    if not isinstance(servers, dict):
        raise ConfigError(
            f"`{'.'.join(table)}` must be an object",
            hint="fix the file first; it was not changed",
        )
    return servers


def applications_folder(installation: Installation) -> Path:
    """The folder where desktop applications keep their settings."""
    if sys.platform == "darwin":
        return installation.user_folder / "Library" / "Application Support"
    return installation.folder_named("XDG_CONFIG_HOME", ".config")
