"""Past sessions: what lessons of them would cost and what shortening would have saved, and having a
model read them."""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from statistics import fmean

from msgspec import Struct

from upwell.app.lesson_queue import Models
from upwell.app.lessons import LessonGain, LessonReader, SessionRead, Work, sessions_of
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


RUNNING_SECONDS = 300.0
"""A session whose last event is more recent may still be running."""
MAX_FAULTS = 3
"""After so many failures of a model, the remaining sessions are left for another time."""


async def write_past(
    app: MemoryApp,
    transcripts: Sequence[Transcript],
    show: Callable[[int, int], None],
    *,
    since: float = 0.0,
    max_tokens: int | None = None,
    newest: int | None = None,
    now: float,
) -> tuple[LessonGain, list[str]]:
    """Have the user's model read past sessions that ended after `since`, oldest first, so that each
    sees the lessons of earlier ones. With `newest`, only so many are read: the last ones worth it.
    Stops when the budget is spent: `max_tokens`, or what is left of the day's. Returns the outcome,
    and a line for each transcript that cannot be read.

    Raises:
        UsageError: `lessons.model` is not set.
        StoreError: a lesson cannot be stored.
    """
    if not app.config.lessons.model:
        raise UsageError(
            "no model writes lessons",
            hint="set lessons.model to agent (the agents' own models) or endpoint (llm.*)",
        )
    unreadable: list[str] = []
    until = now - RUNNING_SECONDS
    sessions = await asyncio.to_thread(_ended, transcripts, since, until, unreadable)
    models, gain = Models(app.config), LessonGain()
    lessons = app.lessons(models)
    try:
        if newest is not None:
            sessions = await _newest(lessons, sessions, newest)
        for done, (transcript, name) in enumerate(sessions):
            show(done, len(sessions))
            session = await asyncio.to_thread(_read, transcript, name)
            await lessons.read(session, gain, max_tokens=max_tokens)
            if gain.is_over_budget or len(gain.faults) >= MAX_FAULTS:
                break
    finally:
        models.close()
    return gain, unreadable


def _ended(
    transcripts: Sequence[Transcript], since: float, until: float, unreadable: list[str]
) -> list[tuple[Transcript, str]]:
    """The transcripts and names of the sessions that ended between these times, in order. Their
    events are read again later, because those of all sessions may not fit in memory."""
    found: list[tuple[float, str, Transcript]] = []
    for transcript in transcripts:
        try:
            ends = {event.session: event.t for event in transcript.events()}
        except (UsageError, OSError) as error:
            unreadable.append(f"{transcript.path} is left out: {error}")
            continue
        found += [(at, name, transcript) for name, at in ends.items() if since <= at <= until]
    return [(transcript, name) for _, name, transcript in sorted(found, key=lambda one: one[:2])]


def _read(transcript: Transcript, name: str) -> SessionRead:
    # The file may have been rewritten since it was first read.
    nothing = SessionRead(events=(), transcript=str(transcript.path))
    return next((one for one in sessions_of(transcript) if one.name == name), nothing)


async def _newest(
    lessons: LessonReader, sessions: Sequence[tuple[Transcript, str]], number: int
) -> list[tuple[Transcript, str]]:
    """The last `number` of the sessions that a model would read, in order."""
    chosen: list[tuple[Transcript, str]] = []
    for transcript, name in reversed(sessions):
        if len(chosen) == number:
            break
        work = await lessons.work_on(await asyncio.to_thread(_read, transcript, name))
        if isinstance(work, Work):
            chosen.append((transcript, name))
    return chosen[::-1]
