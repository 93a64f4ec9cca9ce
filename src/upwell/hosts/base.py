"""The record of an agent host: everything that upwell needs to know about it, in one place."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from upwell.hosts.events import EventFormat
from upwell.hosts.headless import Headless
from upwell.hosts.installation import HookFile, Installation
from upwell.hosts.servers import ServerFile


class Export(Struct, frozen=True, kw_only=True):
    """The output of `upwell hook export`: an instruction for agents without hooks.

    - `tool_name` is the host's name for a tool of ours. `{}` stands for our own name for the tool.
    - `file` holds the instruction; its path is relative to the project. `layout` is its content,
      with `{}` for the instruction.
    - `plugin_tool_name` is the name of a tool that upwell's plugin brings, if it differs.
    """

    tool_name: str
    file: str = "AGENTS.md"
    layout: str = "{}"
    plugin_tool_name: str = ""


class AutoLoaded(Struct, frozen=True, kw_only=True):
    """The instruction files that a host loads into every session by itself. The agent already knows
    their content, so upwell does not repeat it. `folder` and `scoped` are glob patterns, the others
    plain paths.

    - `user` paths are relative to the user's home folder.
    - `folder` patterns are relative to the working directory and every folder above it, up to the
      root of the repository. `fallback` paths apply in a folder where no `folder` pattern
      matches.
    - `scoped` patterns are relative to the same folders. A file's front matter may limit it to some
      paths (`globs`, `applyTo`, `paths`).
    - `follows_imports`: `@path` in a file includes another file. A file of the project may include
      only files of the project, because the host asks before it loads others. A file in `user` may
      include files anywhere if `user_imports_anywhere` is set, or else only files beside it.
    """

    user: tuple[str, ...] = ()
    folder: tuple[str, ...] = ()
    fallback: tuple[str, ...] = ()
    scoped: tuple[str, ...] = ()
    follows_imports: bool = False
    user_imports_anywhere: bool = False


class Transcripts(Struct, frozen=True, kw_only=True):
    """Where a host records its sessions, as glob patterns relative to the user's home folder.
    `format` selects the reader."""

    format: str
    files: tuple[str, ...]


SESSION = "$SESSION"
FOLDER = "$FOLDER"
"""`SESSION` and `FOLDER` are placeholders in a probe's payload."""


class Probe(Struct, frozen=True, kw_only=True):
    """The event that a host sends when a session starts. `upwell setup` sends a recorded `payload`
    to an installed hook as a test."""

    event: str
    payload: Mapping[str, Any]

    def payload_of(self, session: str, folder: str) -> dict[str, Any]:
        """The payload with the placeholders filled in."""
        values = {SESSION: session, FOLDER: folder}
        return {key: _filled(value, values) for key, value in self.payload.items()}


def _filled(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_filled(item, values) for item in value]
    return values.get(value, value) if isinstance(value, str) else value


NESTED_PROBE = Probe(
    event="SessionStart",
    payload={
        "session_id": SESSION,
        "transcript_path": "",
        "cwd": FOLDER,
        "hook_event_name": "SessionStart",
        "source": "startup",
    },
)
"""The probe for Claude Code and for the hosts that use the same format."""


class Host(Struct, frozen=True, kw_only=True):
    """One agent host.

    - `name` is the host's name on the command line. `title` is the product's name.
    - `writers` are the agent's tools that change files, each with upwell's name for it (`Edit`,
      `Write`). `recorded_tools` are further names of tools that occur only in transcripts, for
      example from earlier versions.
    - `servers` is None if upwell does not touch the agent's MCP servers.
    - `clients` are lower-case patterns for the names by which the host introduces itself to MCP
      servers (`clientInfo.name`).
    - `hooks_off` returns the setting that stops the host from running the user's hooks in a folder,
      or "" if they run. None if no such setting is known.
    - `repeats_starts`: the host reports the start of a session again at each of its prompts.
    - `headless` is how to ask the host's model one question, None if that is not possible.
    - `shares_hooks`: the host also runs another host's hooks, or another host runs its hooks. One
      event may therefore arrive under several host names.
    """

    name: str
    title: str
    events: EventFormat
    hooks: HookFile
    export: Export
    writers: Mapping[str, str]
    recorded_tools: Mapping[str, str] = field(default_factory=dict)
    probe: Probe = NESTED_PROBE
    servers: ServerFile | None = None
    auto_loaded: AutoLoaded = AutoLoaded()
    transcripts: Transcripts | None = None
    hooks_off: Callable[[Installation, Path], str] | None = None
    repeats_starts: bool = False
    headless: Headless | None = None
    shares_hooks: bool = False
    clients: tuple[str, ...] = ()
