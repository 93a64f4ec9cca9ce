"""What happens when an agent's hooks report the end of a turn or session. No answer to an event
waits for it."""

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upwell.capture.transcript import has_lost_marks, written_in
from upwell.ground.errors import StoreError
from upwell.ground.trace import LOG
from upwell.hook.door import TurnEnd
from upwell.hosts.events import EventKind, HostEvent
from upwell.surface.learning import Learning
from upwell.surface.pipeline import Surfacer
from upwell.surface.render import TAG
from upwell.surface.rules import HEADING

if TYPE_CHECKING:
    from upwell.app.capture import SessionCapture
    from upwell.sessions.index import SessionIndex


async def end_turn(
    surfacer: Surfacer,
    learning: Learning,
    capture: "SessionCapture | None",
    past: "SessionIndex | None",
    ended: TurnEnd,
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
    await ended(event)
    written = partial(_written, event, time.time())
    await learning.wrote(event.session, written, ended=event.kind is EventKind.END)
    if not event.reports_compactions and await _has_lost_memories(event):
        await surfacer.compacting(event.session)
    if capture is not None:
        try:
            await capture.end_turn(event.transcript, event.session, event.cwd)
        except (StoreError, OSError) as error:
            LOG.warning("nothing was learned from a turn: %s", error)
    if past is not None:
        await _keep_record(past, event)


async def _keep_record(past: "SessionIndex", event: HostEvent) -> None:
    try:
        await past.read_one(event.transcript)
        if event.kind is EventKind.END:
            await past.close(event.session)
    except (StoreError, OSError) as error:
        LOG.warning("the record of a session is out of date: %s", error)


async def _has_lost_memories(event: HostEvent) -> bool:
    """True if the host compacted the history, so that the surfaced memories are no longer in it."""
    return await asyncio.to_thread(has_lost_marks, event.transcript, (HEADING, TAG))


def _written(event: HostEvent, now: float, since: float) -> list[tuple[float, str]]:
    last_message = [(now, event.text)] if event.text else []
    earlier = written_in(event.transcript, since) if event.transcript else []
    return [*last_message, *earlier]


def answered_elsewhere(hooks_file: Path, host: str, payload: Mapping[str, Any]) -> bool:
    """True if Cursor, which also runs Claude Code's hooks, answers the event with its own hook."""
    if host != "claude" or "cursor_version" not in payload:
        return False
    from upwell.hosts.installed import installed_entries

    return "cursor" in installed_entries(hooks_file)
