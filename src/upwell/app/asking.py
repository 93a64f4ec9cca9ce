"""Facts for the hook that, at the end of a turn, asks the agent to store what it learned."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from upwell.config import Config
from upwell.episodes.signatures import command_of
from upwell.gateway.routing.tools import front_name
from upwell.ground.errors import UpwellError
from upwell.ground.files import read_regular_file
from upwell.ground.names import OWN_SERVER
from upwell.ground.project import is_seen, project_of
from upwell.ground.types.memory import Scope, Trust
from upwell.hosts import HOSTS
from upwell.hosts.base import Host
from upwell.hosts.entries import OWN_TOOLS
from upwell.hosts.events import HostEvent
from upwell.hosts.installation import Installation
from upwell.hosts.installed import installed_entries
from upwell.hosts.plugins import plugin_of
from upwell.hosts.servers import ServerFile
from upwell.memory.library import Library
from upwell.memory.notes.stm import ShortTerm
from upwell.replay.transcripts import events_at_end

OWN_TOOL = "add_memory"
GATEWAY_TOOL = front_name(OWN_SERVER, OWN_TOOL)
MAX_TRANSCRIPT_BYTES = 300_000
MAX_FILE_BYTES = 400_000
"""A larger settings file is not read, because parsing it would take too long."""


async def tool_name(config: Config, host: Host, event: HostEvent) -> str:
    """The name under which the agent sees `add_memory`; "" if upwell is not among the agent's
    servers.
    """
    user = Installation(user_folder=Path.home(), environment=config.environment, command=())
    if await asyncio.to_thread(plugin_of, host.name, user):
        return (host.export.plugin_tool_name or host.export.tool_name).format(OWN_TOOL)
    if host.servers is None:
        return ""
    if host.servers.name in installed_entries(config.home.clients_file):
        return host.export.tool_name.format(GATEWAY_TOOL)
    tool = await asyncio.to_thread(_tool, config, host.servers, event.cwd)
    return host.export.tool_name.format(tool) if tool else ""


async def has_own_tools(config: Config, host: str, cwd: str) -> bool:
    """True if upwell is among the servers in the settings of this host."""
    servers = HOSTS[host].servers if host in HOSTS else None
    return servers is not None and bool(await asyncio.to_thread(_tool, config, servers, cwd))


async def has_noted(library: Library, notes: ShortTerm, event: HostEvent, since: float) -> bool:
    """True if, since the time `since`, anybody has stored a memory, or an agent has stored a note,
    that is visible in the event's project.
    """
    project = project_of(event.cwd)
    latest = await library.store.list(Scope(project=project), limit=1)
    if any((memory.created_at or 0.0) >= since for memory in latest):
        return True
    return any(
        (note.created_at or 0.0) >= since
        for note in await asyncio.to_thread(notes.memories)
        if note.trust is Trust.AGENT and is_seen(note.project, project)
    )


async def commands_in(event: HostEvent, since: float) -> Sequence[tuple[str, bool]]:
    """The commands that the event's session has run since the time `since`, and whether each
    failed, as far as the end of the transcript shows them."""
    return await asyncio.to_thread(_commands_in, event.transcript, since)


def _commands_in(transcript: str, since: float) -> Sequence[tuple[str, bool]]:
    return [
        (command, event.failed)
        for event in events_at_end(transcript, MAX_TRANSCRIPT_BYTES)
        if event.t >= since and (command := command_of(event))
    ]


def _tool(config: Config, file: ServerFile, cwd: str | None) -> str:
    """The name of `add_memory` in upwell's server: behind the gateway, or alone."""
    installation = Installation(user_folder=Path.home(), environment=config.environment, command=())
    project = project_of(cwd)
    files = [file, *(file.for_project(Path(project)) if project else ())]
    return next(filter(None, (_tool_in(each, installation) for each in files)), "")


def _tool_in(file: ServerFile, installation: Installation) -> str:
    path = file.path(installation)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return ""
        entries = file.entries(read_regular_file(path).decode("utf-8"))
    except (OSError, ValueError, UpwellError):
        return ""
    own = [entry for entry in entries if entry.name == OWN_SERVER]
    if any(entry.ours for entry in own):
        return GATEWAY_TOOL
    return OWN_TOOL if any(entry.left == OWN_TOOLS for entry in own) else ""
