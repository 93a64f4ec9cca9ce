"""What an agent has of upwell besides hooks: a plugin, and `upwell wrap` in front of its servers.

The agent installs and removes a plugin by its own commands; its files are in `plugins/` of the
repository. A wrapped server keeps its name, its table and everything else in its entry. The
original command stands in the wrapped entry, so taking the wrapper away needs no record.

Sources: what Claude Code 2.1.332, Copilot CLI 1.0.102, Codex 0.171, Gemini CLI 0.61.0 and OpenCode
1.18.33 write when they install a plugin from a Git repository, a folder or a package
(`tests/live/test_plugins.py`, `tests/live/test_extensions.py`); for Cursor, the repository
cursor/plugins.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.errors import ConfigError
from upwell.ground.files import read_regular_file
from upwell.ground.names import OWN_SERVER
from upwell.hosts.edits import TOML
from upwell.hosts.events import table_of, text_of
from upwell.hosts.installation import Installation
from upwell.hosts.jsonc import object_in
from upwell.hosts.opencode import config_file
from upwell.hosts.servers import (
    ServerFile,
    Table,
    args_fault,
    has_only_tools,
    is_upwell,
    url_of,
    words_of,
    wrapped_words,
)

_VERSION = re.compile(r"^version=(\S{1,40})$", re.MULTILINE)
_IN_REPOSITORY = Path("plugins", "upwell")
OPENCODE_PACKAGE = "opencode-upwell"
MAX_PATH_CHARS = 4_096


class Plugin(Struct, frozen=True):
    """upwell's plugin, installed and enabled in an agent. `version` is "" if the plugin's files are
    gone or cannot be read."""

    folder: Path

    @property
    def version(self) -> str:
        try:
            found = _VERSION.search(read_regular_file(self.folder / "run").decode())
        except (OSError, ValueError):
            return ""
        return found[1] if found else ""


def plugin_of(agent: str, installation: Installation) -> Plugin | None:
    """The agent's plugin, or None if there is none, or if the user has disabled it."""
    find = _FINDERS.get(agent)
    folder = find(installation) if find else None
    return Plugin(folder) if folder else None


def _in_claude(installation: Installation) -> Path | None:
    root = installation.folder_named("CLAUDE_CONFIG_DIR", ".claude")
    name = _enabled(object_in(root / "settings.json").get("enabledPlugins"))
    if not name:
        return None
    marketplace = table_of(object_in(root / "plugins/known_marketplaces.json").get(_place_in(name)))
    if table_of(marketplace.get("source")).get("source") == "directory":
        return Path(text_of(marketplace.get("installLocation"), MAX_PATH_CHARS), _IN_REPOSITORY)
    installed = object_in(root / "plugins/installed_plugins.json").get("plugins")
    copies = table_of(installed).get(name)
    newest = table_of(copies[-1]) if isinstance(copies, list) and copies else {}
    return Path(text_of(newest.get("installPath"), MAX_PATH_CHARS))


def _in_copilot(installation: Installation) -> Path | None:
    root = installation.folder_named("COPILOT_HOME", ".copilot")
    installed = object_in(root / "config.json").get("installedPlugins")
    for entry in map(table_of, installed if isinstance(installed, list) else ()):
        if entry.get("name") == OWN_SERVER and entry.get("enabled") is not False:
            return Path(text_of(entry.get("cache_path"), MAX_PATH_CHARS))
    settings = object_in(root / "settings.json")
    name = _enabled(settings.get("enabledPlugins"))
    if not name:
        return None
    marketplace = table_of(table_of(settings.get("extraKnownMarketplaces")).get(_place_in(name)))
    source = table_of(marketplace.get("source"))
    return Path(text_of(source.get("path"), MAX_PATH_CHARS), _IN_REPOSITORY)


def _in_codex(installation: Installation) -> Path | None:
    root = installation.folder_named("CODEX_HOME", ".codex")
    try:
        settings: Any = TOML.value(read_regular_file(root / "config.toml").decode())
    except (OSError, ValueError, ConfigError):
        return None
    plugins = table_of(table_of(settings).get("plugins"))
    name = _enabled({key: table_of(entry).get("enabled", True) for key, entry in plugins.items()})
    if not name:
        return None
    folder = root / "plugins" / "cache" / _place_in(name) / OWN_SERVER
    return max(folder.glob("*"), key=lambda copy: copy.stat().st_mtime, default=folder)


def _in_cursor(installation: Installation) -> Path | None:
    root = installation.user_folder / ".cursor" / "plugins"
    copies = [*root.glob("local/upwell"), *root.glob("cache/*/upwell/*")]
    return max(copies, key=lambda copy: copy.stat().st_mtime, default=None)


def _in_gemini(installation: Installation) -> Path | None:
    root = installation.folder_named("GEMINI_CLI_HOME", "") / ".gemini" / "extensions"
    folder = root / OWN_SERVER
    enabled = object_in(root / "extension-enablement.json")
    states = table_of(enabled.get(OWN_SERVER)).get("overrides")
    off = f"!{installation.folder_named('GEMINI_CLI_HOME', '')}/*"
    if not folder.is_dir() or (isinstance(states, list) and off in states):
        return None
    source = object_in(folder / ".gemini-extension-install.json")
    if source.get("type") == "link":
        folder = Path(text_of(source.get("source"), MAX_PATH_CHARS))
    return folder / _IN_REPOSITORY


def _in_opencode(installation: Installation) -> Path | None:
    """A plugin is a path, or a package that OpenCode keeps by its name and version."""
    kept = installation.folder_named("XDG_CACHE_HOME", ".cache") / "opencode" / "packages"
    listed = object_in(config_file(installation)).get("plugin")
    for entry in map(str, listed if isinstance(listed, list) else ()):
        spec = entry if "@" in entry[1:] else f"{entry}@latest"
        folder = kept / spec / "node_modules" / OPENCODE_PACKAGE
        if entry.startswith(("/", "file:/")):
            folder = Path("/", entry.removeprefix("file:").lstrip("/"))
        if object_in(folder / "package.json").get("name") == OPENCODE_PACKAGE:
            return folder
    return None


_FINDERS: Mapping[str, Callable[[Installation], Path | None]] = {
    "claude": _in_claude,
    "copilot": _in_copilot,
    "codex": _in_codex,
    "cursor": _in_cursor,
    "gemini": _in_gemini,
    "opencode": _in_opencode,
}
"""Finds the folder of the plugin in each agent that can have it."""


def _enabled(plugins: Any) -> str:
    """The name of our plugin (`upwell@MARKETPLACE`) if it is enabled, or ""."""
    ours = (name for name, state in table_of(plugins).items() if state is True)
    return next((name for name in ours if name.partition("@")[0] == OWN_SERVER), "")


def _place_in(name: str) -> str:
    return name.partition("@")[2]


BEHIND_UPWELL = "this agent's servers are behind upwell"


class WrappedServers(Struct, frozen=True):
    """The file in which an agent's servers are wrapped, as `Installer` uses it."""

    servers: ServerFile

    @property
    def next_step(self) -> str:
        return self.servers.next_step

    def path(self, installation: Installation) -> Path:
        return self.servers.path(installation)

    def is_present(self, installation: Installation) -> bool:
        return self.servers.is_present(installation)

    def with_ours(self, text: str, installation: Installation) -> str:
        """`text` with every local server wrapped and with upwell's own tools, unless the gateway is
        among the servers. A project's file gets no tools, because the user's own file has them,
        and neither does that of an agent with upwell's plugin, which brings them.
        `installation.command` is upwell's launcher of servers."""
        if self.servers.has_ours(text):
            return text

        def wrapped(name: str, raw: Any) -> Sequence[str]:
            if self.left(name, raw):
                return ()
            return (*installation.command, "wrap", "--name", name, "--", *words_of(raw))

        servers = self.servers.raw_entries(text)
        text = self._with_commands(text, wrapped)
        table = self.servers.tables[0]
        if self.servers.project or (table, OWN_SERVER) in [where[:2] for where in servers]:
            return text
        if plugin_of(self.servers.agent, installation):
            return text
        tools = replace(installation, command=(*installation.command, "serve", "--tools"))
        return self.servers.with_own_server(text, replace(tools, environment={}))

    def without_ours(self, text: str, moved: Sequence[str] = ()) -> str:
        """`text` with the original command of each wrapped server, and without upwell's tools."""
        edited = self._with_commands(text, lambda name, raw: _unwrapped(raw))
        for table, name, raw in self.servers.raw_entries(edited):
            if name == OWN_SERVER and isinstance(raw, Mapping) and has_only_tools(raw):
                edited = self.servers.without_own_server(edited, table)
        if edited == text:
            return text
        rest = self.servers.format.value(edited)
        return "" if rest in ({}, {self.servers.tables[0][0]: {}}) else edited

    def moved(self, text: str) -> str:
        """Nothing: no server leaves the file."""
        return ""

    def places(self, text: str) -> list[tuple[str, str]]:
        """The servers in `text`, each with the project that it is for, if any, and why it is not
        wrapped, or ""."""
        behind = BEHIND_UPWELL if self.servers.has_ours(text) else ""
        return [
            (f"{name}{_of_project(table)}", behind or self.left(name, raw))
            for table, name, raw in self.servers.raw_entries(text)
            if not (isinstance(raw, Mapping) and has_only_tools(raw))
        ]

    def left(self, name: str, raw: Any) -> str:
        """Why a server is not wrapped, or ""."""
        if name in self.servers.leave:
            return "gateway.leave lists it"
        if not isinstance(raw, Mapping):
            return "its entry is not a table"
        if is_upwell(raw):
            return "it is upwell"
        if _unwrapped(raw):
            return "it is wrapped already"
        if url_of(raw):
            return "it is at an address, where the agent itself signs in"
        words = words_of(raw)
        if not words:
            return args_fault(raw) or "it has no command"
        placeholder = self.servers.placeholders.search(words[0])
        return f"only the agent can fill in {placeholder.group()}" if placeholder else ""

    def _with_commands(self, text: str, command: Callable[[str, Any], Sequence[str]]) -> str:
        """`text` with the command line that `command()` gives for a server, unless it is empty."""
        for table, name, raw in self.servers.raw_entries(text):
            if words := command(name, raw):
                text = self.servers.format.with_command(text, (*table, name), words)
        return text


def _of_project(table: Table) -> str:
    """Some agents keep the servers of a project in a table of their own file, named after its
    folder."""
    return next((f" of {part}" for part in table if "/" in part), "")


def _unwrapped(raw: Any) -> list[str]:
    return wrapped_words(raw) if isinstance(raw, Mapping) else []
