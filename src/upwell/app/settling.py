"""What the end of a turn or session settles, and a compaction: behind the events, never in the
way of one."""

import asyncio
import time
from functools import partial
from pathlib import Path

from upwell.capture.inbox import Inbox
from upwell.capture.rewritten import has_forgotten
from upwell.capture.transcript import proposals_in, written_in
from upwell.config import Config
from upwell.ground.errors import StoreError
from upwell.ground.project import project_of
from upwell.ground.redact import redact
from upwell.ground.trace import LOG
from upwell.hook.events import Event, EventKind
from upwell.surface.engine import Surfacer
from upwell.surface.frame import TAG
from upwell.surface.lessons import Lessons
from upwell.surface.rules import HEADING


async def settle(surfacer: Surfacer, lessons: Lessons, config: Config, event: Event) -> None:
    """What was told before a compaction may be told again; what was surfaced in a turn is settled
    by what the agent wrote in it; and proposals are made, where the user agreed to that."""
    if event.kind is EventKind.COMPACT:
        await surfacer.compacting(event.session)
        return
    written = partial(_written, event, time.time())
    await lessons.wrote(event.session, written, ended=event.kind is EventKind.END)
    if not event.tells_compactions and await _forgotten(event):
        await surfacer.compacting(event.session)
    if config.hook.capture and event.kind is EventKind.STOP:
        await _capture(config.home.inbox_file, event)


async def _forgotten(event: Event) -> bool:
    """Was the history compacted, and what we had said is in it no more?"""
    return await asyncio.to_thread(has_forgotten, event.transcript, (HEADING, TAG))


def _written(event: Event, now: float, since: float) -> list[tuple[float, str]]:
    """What the agent wrote since then: by the event itself, and by the host's transcript."""
    said = [(now, event.text)] if event.text else []
    return [*said, *(written_in(event.transcript, since) if event.transcript else [])]


async def _capture(inbox_file: Path, event: Event) -> None:
    """Propose what a turn that ended may have left, in a thread of its own."""
    project = project_of(event.cwd)
    if not event.transcript or project is None:
        return
    propose = partial(
        proposals_in,
        event.transcript,
        source=f"session:{event.session[:40]}",
        project=project,
        session=event.session,
    )
    inbox = Inbox(inbox_file, lambda text: redact(text)[0])
    try:
        await asyncio.to_thread(lambda: inbox.propose(propose()))
    except StoreError as error:
        LOG.warning("nothing was captured: %s", error)
