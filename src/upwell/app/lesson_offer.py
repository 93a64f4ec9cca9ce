"""What lessons would cost and what shortening would save, estimated from the user's own past
sessions.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from statistics import fmean

from msgspec import Struct

from upwell.app.lesson_queue import Models
from upwell.app.lessons import SessionRead, Work, sessions_of
from upwell.app.memory import MemoryApp
from upwell.app.shortening import Savings
from upwell.ground.errors import UsageError
from upwell.replay.transcripts import Transcript

SURVEYED_BYTES = 100_000_000
"""So much of the newest transcripts tells what all of them take."""
KNOWN_TOKENS = 600
"""About what the nearest known lessons add to a question, ten of 60 tokens, once there are so many.
None are known before the first session is read."""
AT_ONCE = 20
"""How many past sessions `upwell setup --lessons` has read: the newest, in a few minutes."""


class LessonOffer(Struct, frozen=True, kw_only=True):
    """What lessons would take. `writers` are the models that would write them, and `setting` is the
    value of `lessons.model` that asks these; both are empty if there is no model. `is_on`: lessons
    are being written already. About `sessions` past ones are worth reading and were not read; one
    takes `tokens_each`, in and out. All of a day may take `daily_tokens`.

    Shortening would have saved `saved_tokens` of the `result_tokens` that tools returned in the
    newest sessions."""

    writers: tuple[str, ...] = ()
    setting: str = ""
    is_on: bool = False
    sessions: int = 0
    tokens_each: int = 0
    daily_tokens: int = 0
    result_tokens: int = 0
    saved_tokens: int = 0

    @property
    def at_once(self) -> int:
        """How many of the sessions are read at once."""
        return min(self.sessions, AT_ONCE)

    @property
    def tokens(self) -> int:
        """About how many tokens these take."""
        return self.at_once * self.tokens_each


async def offered(
    app: MemoryApp,
    transcripts: Sequence[Transcript],
    hosts: Iterable[str],
    show: Callable[[int, int], None],
) -> LessonOffer:
    """What lessons of past sessions, and of later ones of `hosts`, would take. No model is asked.

    Raises:
        StoreError: the store cannot be read.
    """
    options = app.config.lessons
    asking = dataclasses.replace(options, model=options.model or "agent")
    models, savings = Models(dataclasses.replace(app.config, lessons=asking)), Savings(app.config)
    lessons, worth_reading, tokens = app.lessons(models), 0, list[int]()
    asked = dict[str, None]()
    stats = [(transcript, found) for transcript in transcripts if (found := transcript.stat())]
    size, seen = sum(found.st_size for _, found in stats), 0
    for transcript, found in sorted(stats, key=lambda known: -known[1].st_mtime):
        sessions: list[SessionRead] = []
        with suppress(UsageError, OSError):
            events = savings.watch(transcript.events())
            sessions = await asyncio.to_thread(sessions_of, transcript, events)
        for session in sessions:
            work = await lessons.work_on(session)
            if isinstance(work, Work):
                worth_reading += 1
                asked[session.host] = None
                if len(tokens) < AT_ONCE:
                    tokens.append((await asyncio.to_thread(work.prompt))[1])
        seen += found.st_size
        show(seen, min(size, SURVEYED_BYTES))
        if seen >= SURVEYED_BYTES:
            break
    asked |= dict.fromkeys(hosts)
    usable = [model for host in asked if (model := models.of(host))]
    setting = "agent" if any(model.is_agent for model in usable) else "endpoint"
    return LessonOffer(
        writers=tuple(dict.fromkeys(model.name for model in usable)),
        setting=setting if usable else "",
        is_on=bool(options.model),
        # Those of the newest transcripts tell about how many there are in all.
        sessions=round(worth_reading / (seen / size if size else 1.0)),
        tokens_each=round(fmean(tokens)) + KNOWN_TOKENS if tokens else 0,
        daily_tokens=options.daily_tokens,
        result_tokens=savings.tokens,
        saved_tokens=savings.saved,
    )
