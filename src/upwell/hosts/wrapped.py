"""Puts `upwell wrap` in front of the servers in an agent's file, adds a server with upwell's own
tools, and takes both away again. A wrapped server keeps its name, its table and everything else in
its entry.

The original command stands in the wrapped entry, so taking the wrapper away needs no record.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.names import OWN_SERVER
from upwell.hosts.entries import (
    args_fault,
    has_only_tools,
    is_upwell,
    url_of,
    words_of,
    wrapped_words,
)
from upwell.hosts.installation import Installation
from upwell.hosts.plugins import plugin_of
from upwell.hosts.servers import ServerFile, Table

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
            (_of_project(name, table), behind or self.left(name, raw))
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


def _of_project(name: str, table: Table) -> str:
    """Some agents keep the servers of a project in a table of their own file, named after its
    folder."""
    folder = next((part for part in table if "/" in part), "")
    return f"{name} of {folder}" if folder else name


def _unwrapped(raw: Any) -> list[str]:
    return wrapped_words(raw) if isinstance(raw, Mapping) else []
