"""The work at the end of a turn or session, and before a compaction. It runs after the answer to
the event and never delays one.
"""

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upwell.capture.transcript import has_lost_marks, written_in
from upwell.ground.errors import StoreError
from upwell.ground.trace import LOG
from upwell.hosts.events import Event, EventKind
from upwell.surface.learning import Learning
from upwell.surface.pipeline import Surfacer
from upwell.surface.render import TAG
from upwell.surface.rules import HEADING

if TYPE_CHECKING:
    from upwell.app.sessions import SessionLearning


async def end_turn(
    surfacer: Surfacer,
    learning: Learning,
    sessions: "SessionLearning | None",
    event: Event,
) -> None:
    """Before a compaction, let everything be surfaced again. At the end of a turn, let learning see
    the agent's text. With `sessions`, which means that the user has agreed to it, keep the findings
    of the turn.
    """
    if event.kind is EventKind.COMPACT:
        await surfacer.compacting(event.session)
        return
    written = partial(_written, event, time.time())
    await learning.wrote(event.session, written, ended=event.kind is EventKind.END)
    if not event.reports_compactions and await _has_lost_memories(event):
        await surfacer.compacting(event.session)
    if sessions is not None:
        try:
            await sessions.end_turn(event.transcript, event.session, event.cwd)
        except (StoreError, OSError) as error:
            LOG.warning("nothing was learned from a turn: %s", error)


async def _has_lost_memories(event: Event) -> bool:
    """True if the host compacted the history, so that our memories are no longer in it."""
    return await asyncio.to_thread(has_lost_marks, event.transcript, (HEADING, TAG))


def _written(event: Event, now: float, since: float) -> list[tuple[float, str]]:
    """The texts that the agent has written since then, from the event and the transcript."""
    last_message = [(now, event.text)] if event.text else []
    earlier = written_in(event.transcript, since) if event.transcript else []
    return [*last_message, *earlier]


def answered_elsewhere(hooks_file: Path, host: str, payload: Mapping[str, Any]) -> bool:
    """Cursor also runs Claude Code's hooks; if Cursor has hooks of its own, only those answer."""
    if host != "claude" or "cursor_version" not in payload:
        return False
    from upwell.hosts.install import installed_entries

    return "cursor" in installed_entries(hooks_file)
