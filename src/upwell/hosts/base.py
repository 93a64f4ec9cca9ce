"""The record of an agent host: everything upwell must know to work with one agent, in one place."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from upwell.ground.names import OWN_SERVER
from upwell.hosts.events import EventFormat
from upwell.hosts.installation import HookFile, Installation
from upwell.hosts.servers import ServerFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """The output of `upwell hook export`: an instruction for agents without hooks, in `file` below
    the project, and for some hosts a plugin.

    `tool_name` is the pattern of the names that the host gives our tools, with `{}` for the tool's
    name; `layout` is the content of the file, with `{}` in place of the instruction. `plugin`
    returns further files by relative path.
    """

    tool_name: str
    file: str = "AGENTS.md"
    layout: str = "{}"
    plugin: Callable[[Installation], Mapping[str, str]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoLoaded:
    """The instruction files that a host loads into every session by itself, as glob patterns. The
    agent knows their content already, so upwell does not repeat it.

    - `user` patterns are relative to the user's home folder.
    - `folder` patterns are relative to the working directory and to every folder above it, up to
      the root of the repository; `fallback` patterns apply if no `folder` pattern matches.
    - `scoped` patterns are relative to the same folders. Front matter may restrict such a file to
      some paths (`globs`, `applyTo`, `paths`).
    - `follows_imports`: `@path` in such a file includes another file.
    """

    user: tuple[str, ...] = ()
    folder: tuple[str, ...] = ()
    fallback: tuple[str, ...] = ()
    scoped: tuple[str, ...] = ()
    follows_imports: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcripts:
    """The places where a host records its sessions: glob patterns relative to the user's home
    folder, and the name of their format, which selects the reader."""

    format: str
    files: tuple[str, ...]


def never_off(installation: Installation, folder: Path) -> str:
    """Return "", for a host without a known setting that switches hooks off."""
    del installation, folder
    return ""


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """A host's rule that allows or forbids a tool of an MCP server, or makes the host ask first.
    `action` is the host's word for it (`deny`). `pattern` is the rule as it is written in `file`,
    and `server` and `tool` are the names in it; `tool` is "" for all tools of the server."""

    file: Path
    action: str
    pattern: str
    server: str
    tool: str

    def behind_upwell(self, server: str) -> str:
        """The pattern of the same tool behind upwell, where its server is called `server`. For a
        rule about all tools of the server, this is their common prefix."""
        return f"mcp__{OWN_SERVER}__{server}__{self.tool}"


def no_permissions(installation: Installation, folder: Path) -> Sequence[PermissionRule]:
    """Return no rules, for a host whose rules are unknown or never mention tools of servers."""
    del installation, folder
    return ()


SESSION = "$SESSION"
FOLDER = "$FOLDER"
"""`SESSION` and `FOLDER` are placeholders in the payload of a probe."""
PROBE_SESSIONS = "upwell-setup-"
"""The prefix of the session ids of probes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The event that a host sends at the start of a session. `upwell setup` sends it to an
    installed hook to test the hook. `event` is its name, and `payload` is a recorded payload with
    `SESSION` and `FOLDER` in place of the session's id and folder."""

    event: str
    payload: Mapping[str, Any]

    def payload_of(self, session: str, folder: str) -> dict[str, Any]:
        """The payload for a session in a folder."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One agent host.

    - `name` is the name on the command line; `title` is the product's name and the heading of its
      section in `docs/hooks.md`.
    - `events` reads its events and writes its answers; `hooks` is the file of its hooks.
    - `probe` is an event to test the installed hooks with.
    - `writers` maps the tools with which the agent changes files to the names that surfacing knows
      (`Edit`, `Write`); `recorded_tools` does so for further names in transcripts, such as those of
      earlier versions.
    - `servers` is the file of its MCP servers, or None if `upwell init` leaves those servers alone.
    - `clients` are the names, as patterns in lower case, by which the host introduces itself to
      MCP servers (`clientInfo.name`).
    - `hooks_off` returns the setting that keeps the host from running the user's hooks in a folder,
      or "" if hooks run.
    - `permissions` returns the host's rules for tools of MCP servers, for work in a folder.
    - `shares_hooks`: the host also runs hooks that another host's file configures, so that one
      event may arrive under several names.
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
    hooks_off: Callable[[Installation, Path], str] = never_off
    permissions: Callable[[Installation, Path], Sequence[PermissionRule]] = no_permissions
    shares_hooks: bool = False
    clients: tuple[str, ...] = ()
