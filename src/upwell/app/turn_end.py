"""The work at the end of a turn or session, and before a compaction. It runs after the event was
answered and never delays an answer."""

import asyncio
import time
from functools import partial
from pathlib import Path

from upwell.capture.inbox import Inbox
from upwell.capture.transcript import has_lost_marks, proposals_in, written_in
from upwell.config import Config
from upwell.ground.errors import StoreError
from upwell.ground.project import project_of
from upwell.ground.secrets.redact import redact
from upwell.ground.trace import LOG
from upwell.hosts.events import Event, EventKind
from upwell.surface.learning import Learning
from upwell.surface.pipeline import Surfacer
from upwell.surface.render import TAG
from upwell.surface.rules import HEADING


async def end_turn(surfacer: Surfacer, learning: Learning, config: Config, event: Event) -> None:
    """Before a compaction, let everything be surfaced again. At the end of a turn, let learning see
    what the agent wrote, and propose memories where the user has agreed to that."""
    if event.kind is EventKind.COMPACT:
        await surfacer.compacting(event.session)
        return
    written = partial(_written, event, time.time())
    await learning.wrote(event.session, written, ended=event.kind is EventKind.END)
    if not event.reports_compactions and await _has_lost_memories(event):
        await surfacer.compacting(event.session)
    if config.hook.capture and event.kind is EventKind.STOP:
        await _capture(config.home.inbox_file, event)


async def _has_lost_memories(event: Event) -> bool:
    """Did the host compact the history, so that our memories are no longer in it?"""
    return await asyncio.to_thread(has_lost_marks, event.transcript, (HEADING, TAG))


def _written(event: Event, now: float, since: float) -> list[tuple[float, str]]:
    """The texts that the agent has written since then, from the event and the transcript."""
    last_message = [(now, event.text)] if event.text else []
    earlier = written_in(event.transcript, since) if event.transcript else []
    return [*last_message, *earlier]


async def _capture(inbox_file: Path, event: Event) -> None:
    """Propose memories from the turn, in a thread of its own."""
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
        LOG.warning("no memories were captured: %s", error)
