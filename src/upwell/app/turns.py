"""What the end of a turn or session sets off (`end_turn()`), for which no answer to an event waits.
Then the facts for the hook that asks the agent to store what it learned.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upwell.capture.sessions import has_lost_marks, written_in
from upwell.config import Config
from upwell.episodes.signatures import command_of
from upwell.gateway.routing.tools import front_name
from upwell.ground.errors import StoreError, UpwellError
from upwell.ground.files import read_regular_file
from upwell.ground.names import OWN_SERVER
from upwell.ground.project import is_seen, project_of
from upwell.ground.trace import LOG
from upwell.ground.types.memory import Scope, Trust
from upwell.hook.door import TurnEnd
from upwell.hosts import HOSTS
from upwell.hosts.base import Host
from upwell.hosts.events import EventKind, HostEvent
from upwell.hosts.install import installed_entries
from upwell.hosts.installation import Installation
from upwell.hosts.plugins import plugin_of
from upwell.hosts.servers import OWN_TOOLS, ServerFile
from upwell.memory.library import Library
from upwell.memory.stm import ShortTerm
from upwell.replay.transcripts import events_at_end
from upwell.surface.learning import Learning
from upwell.surface.pipeline import Surfacer
from upwell.surface.render import TAG
from upwell.surface.rules import HEADING

if TYPE_CHECKING:
    from upwell.app.capture import SessionCapture
    from upwell.sessions.index import SessionIndex


OWN_TOOL = "add_memory"
GATEWAY_TOOL = front_name(OWN_SERVER, OWN_TOOL)
MAX_TRANSCRIPT_BYTES = 300_000
MAX_FILE_BYTES = 400_000
"""A larger settings file is not read, because parsing it would take too long."""


async def end_turn(
    surfacer: Surfacer,
    learning: Learning,
    capture: "SessionCapture | None",
    past: "SessionIndex | None",
    ended: TurnEnd | None,
    event: HostEvent,
) -> None:
    """Before a compaction, allow memories to surface again in the session. At the end of a turn,
    pass the agent's texts to learning. `capture`, which is None unless the user has turned it on,
    also stores the findings of the turn. `past` then keeps the session's record. `ended()` hears of
    the event, too.
    """
    if event.kind is EventKind.COMPACT:
        await surfacer.compacting(event.session)
        return
    if ended is not None:
        await ended(event)
    now = time.time()

    def written(since: float) -> list[tuple[float, str]]:
        last_message = [(now, event.text)] if event.text else []
        earlier = written_in(event.transcript, since) if event.transcript else []
        return [*last_message, *earlier]

    await learning.wrote(event.session, written, ended=event.kind is EventKind.END)
    marks = (HEADING, TAG)  # they are no longer in a history that the host compacted
    if not event.reports_compactions and await asyncio.to_thread(
        has_lost_marks, event.transcript, marks
    ):
        await surfacer.compacting(event.session)
    if capture is not None:
        try:
            await capture.end_turn(event.transcript, event.session, event.cwd)
        except (StoreError, OSError) as error:
            LOG.warning("nothing was learned from a turn: %s", error)
    if past is not None:
        try:
            await past.read_one(event.transcript)
            if event.kind is EventKind.END:
                await past.close(event.session)
        except (StoreError, OSError) as error:
            LOG.warning("the record of a session is out of date: %s", error)


def answered_elsewhere(hooks_file: Path, host: str, payload: Mapping[str, Any]) -> bool:
    """True if Cursor, which also runs Claude Code's hooks, answers the event with its own hook."""
    if host != "claude" or "cursor_version" not in payload:
        return False
    return "cursor" in installed_entries(hooks_file)


async def tool_name(config: Config, host: Host, event: HostEvent) -> str:
    """The name under which the agent sees `add_memory`; "" if upwell is not among the agent's
    servers.
    """
    user = Installation.of_user(config.environment)
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

    def read() -> list[tuple[str, bool]]:
        recent = events_at_end(event.transcript, MAX_TRANSCRIPT_BYTES)
        commands = ((command_of(each), each.failed) for each in recent if each.t >= since)
        return [(command, failed) for command, failed in commands if command]

    return await asyncio.to_thread(read)


def _tool(config: Config, file: ServerFile, cwd: str | None) -> str:
    """The name of `add_memory` in upwell's server: behind the gateway, or alone."""
    installation = Installation.of_user(config.environment)
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
