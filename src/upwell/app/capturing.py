"""What the end of a turn leaves behind: proposals for the inbox, where the user agreed to it."""

import asyncio
from functools import partial
from pathlib import Path

from upwell.capture.inbox import Inbox
from upwell.capture.transcript import proposals_in
from upwell.ground.errors import StoreError
from upwell.ground.project import project_of
from upwell.ground.redact import redact
from upwell.ground.trace import LOG
from upwell.hook.events import Event, EventKind


async def capture(inbox_file: Path, event: Event) -> None:
    """Propose what a turn that ended may have left, in a thread of its own."""
    project = project_of(event.cwd)
    if event.kind is not EventKind.STOP or not event.transcript or project is None:
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
    except (StoreError, TimeoutError) as error:
        LOG.warning("nothing was captured: %s", error)
