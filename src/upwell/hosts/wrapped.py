"""Puts `upwell wrap` in front of the servers in an agent's file, and takes it away again. A server
keeps its name, its table and everything else in its entry.

The original command stands in the wrapped entry, so taking the wrapper away needs no record.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from upwell.hosts.entries import is_upwell, url_of, words_of, wrapped_words
from upwell.hosts.installation import Installation
from upwell.hosts.servers import ServerFile

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
        return self.servers.path(installation).is_file()

    def with_ours(self, text: str, installation: Installation) -> str:
        """`text` with every local server wrapped, unless `upwell serve` is among them.
        `installation.command` is `upwell wrap`."""
        if self.servers.has_ours(text):
            return text
        home = installation.environment.get("UPWELL_HOME", "")
        options = ["--home", home] if home else []

        def wrapped(name: str, raw: Any) -> Sequence[str]:
            if self.left(name, raw):
                return ()
            return (*installation.command, "--name", name, *options, "--", *words_of(raw))

        return self._with_commands(text, wrapped)

    def without_ours(self, text: str, moved: Sequence[str] = ()) -> str:
        """`text` with the original command of each wrapped server."""
        return self._with_commands(text, lambda name, raw: _unwrapped(raw))

    def moved(self, text: str) -> str:
        """Nothing: no server leaves the file."""
        return ""

    def places(self, text: str) -> list[tuple[str, str]]:
        """The servers in `text`, and why each is not wrapped, or ""."""
        behind = BEHIND_UPWELL if self.servers.has_ours(text) else ""
        servers = self.servers.raw_entries(text)
        return [(name, behind or self.left(name, raw)) for _, name, raw in servers]

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
            return "it has no command"
        placeholder = self.servers.placeholders.search(words[0])
        return f"only the agent can fill in {placeholder.group()}" if placeholder else ""

    def _with_commands(self, text: str, command: Callable[[str, Any], Sequence[str]]) -> str:
        """`text` with the command line that `command()` gives for a server, unless it is empty."""
        for table, name, raw in self.servers.raw_entries(text):
            if words := command(name, raw):
                text = self.servers.format.with_command(text, (*table, name), words)
        return text


def _unwrapped(raw: Any) -> list[str]:
    return wrapped_words(raw) if isinstance(raw, Mapping) else []
