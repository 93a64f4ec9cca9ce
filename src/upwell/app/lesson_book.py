"""The lessons as a person sees them: written of past sessions, listed, edited, pinned, dropped."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from upwell.app.lesson_models import Models
from upwell.app.lesson_queue import by_session
from upwell.app.lesson_records import SessionRead
from upwell.app.lessons import ID, NAMESPACE, LessonGain, LessonReader, Work, is_lesson
from upwell.app.surfacing import LearningApp
from upwell.ground.errors import StoreError, UsageError
from upwell.ground.text.format import iso
from upwell.ground.types.memory import Memory, Trust
from upwell.replay.transcripts import Transcript

RUNNING_SECONDS = 300.0
"""A session whose last event is more recent may still be running."""
MAX_LISTED = 10_000
MAX_FAULTS = 3
"""After so many failures of a model, the remaining sessions are left for another time."""


class _Session(Struct, frozen=True):
    ended_at: float
    name: str
    transcript: Transcript


async def write_past(
    app: LearningApp,
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
        for done, session in enumerate(sessions):
            show(done, len(sessions))
            read = await asyncio.to_thread(_read, session)
            await lessons.read(read, gain, max_tokens=max_tokens)
            if gain.is_over_budget or len(gain.faults) >= MAX_FAULTS:
                break
    finally:
        models.close()
    return gain, unreadable


def _ended(
    transcripts: Sequence[Transcript], since: float, until: float, unreadable: list[str]
) -> list[_Session]:
    """The sessions that ended between these times, in order. Their events are read again later,
    because those of all sessions may not fit in memory."""
    found: list[_Session] = []
    for transcript in transcripts:
        try:
            ends = {event.session: event.t for event in transcript.events()}
        except (UsageError, OSError) as error:
            unreadable.append(f"{transcript.path} is left out: {error}")
            continue
        found += [
            _Session(at, name, transcript) for name, at in ends.items() if since <= at <= until
        ]
    return sorted(found, key=lambda session: (session.ended_at, session.name))


def _read(session: _Session) -> SessionRead:
    # The file may have been rewritten since it was first read.
    events = by_session(session.transcript.events()).get(session.name, [])
    return SessionRead(events=events, transcript=str(session.transcript.path))


async def _newest(
    lessons: LessonReader, sessions: Sequence[_Session], number: int
) -> list[_Session]:
    """The last `number` of the sessions that a model would read, in order."""
    chosen: list[_Session] = []
    for session in reversed(sessions):
        if len(chosen) == number:
            break
        work = await lessons.work_on(await asyncio.to_thread(_read, session))
        if isinstance(work, Work):
            chosen.append(session)
    return chosen[::-1]


async def rows(app: LearningApp, project: str | None = None) -> list[dict[str, Any]]:
    """The lessons that a project sees (None for those of all projects), newest first."""
    memories = await _listed(app, project)
    superseded = await app.memory.store.superseded([memory.id for memory in memories])
    return [
        {
            "id": memory.id,
            "kind": memory.provenance.tool,
            "text": memory.text,
            "triggers": list(memory.tags),
            "project": memory.project,
            "session": memory.provenance.session,
            "at": memory.created_at,
            "occurrences": memory.occurrences,
            "pinned": memory.pinned,
            "edited": memory.trust is not Trust.AGENT,
        }
        for memory in memories
        if memory.id not in superseded
    ]


async def edit(app: LearningApp, memory_id: str, text: str) -> Memory:
    """Change a lesson's text. It is then the user's own: no session replaces it.

    Raises:
        StoreError: there is no such lesson.
        UsageError: the text is empty.
    """
    return await _update(app, memory_id, text=text)


async def pin(app: LearningApp, memory_id: str) -> Memory:
    """Make a lesson a standing rule of its project.

    Raises:
        StoreError: there is no such lesson.
    """
    return await _update(app, memory_id, pinned=True)


async def drop(app: LearningApp, memory_id: str) -> Memory:
    """Move a lesson to the trash. No later session brings it back.

    Raises:
        StoreError: there is no such lesson.
    """
    memory = await _lesson(app, memory_id)
    await app.lessons().drop(memory.id)
    return memory


async def origin_lines(app: LearningApp, memory_id: str) -> list[str]:
    """Where a lesson comes from, line by line: its session, and the events that show it.

    Raises:
        StoreError: there is no such lesson.
    """
    memory = await _lesson(app, memory_id)
    origin = await app.lessons().origin(memory.id)
    return list(_origin_lines(memory, origin))


def _origin_lines(memory: Memory, origin: Any) -> Iterator[str]:
    yield memory.text
    host = f" of {origin['host']}" if origin.get("host") else ""
    at = f", ended {iso(memory.created_at)}" if memory.created_at else ""
    yield f"session {memory.provenance.session}{host}{at}"
    if memory.occurrences > 1:
        yield f"{memory.occurrences} sessions taught it"
    if memory.supersedes:
        yield f"replaces {memory.supersedes}"
    if origin.get("until"):
        yield f"holds until: {origin['until']}"
    if origin.get("transcript"):
        yield f"transcript {origin['transcript']}"
    yield from (f"  {line}" for line in origin.get("lines", ()))


async def _update(app: LearningApp, memory_id: str, **changes: Any) -> Memory:
    memory = await _lesson(app, memory_id)
    changed = replace(memory, trust=Trust.USER, **changes)
    await app.memory.update(changed)
    return changed


async def _lesson(app: LearningApp, memory_id: str) -> Memory:
    """The lesson with this id, or the only one whose id begins so, with or without its `l_`."""
    memory = await app.memory.get(memory_id)
    if memory is not None and is_lesson(memory):
        return memory
    start = memory_id.removeprefix(ID)
    found = [
        each for each in await _listed(app, None) if start and each.id[len(ID) :].startswith(start)
    ]
    if len(found) > 1:
        raise StoreError(
            f"{len(found)} lessons have an id that begins with {memory_id!r:.60}",
            hint="give more of it; `upwell lessons` lists them",
        )
    if not found:
        raise StoreError(f"no lesson {memory_id!r:.60}", hint="`upwell lessons` lists them")
    return found[0]


async def _listed(app: LearningApp, project: str | None) -> list[Memory]:
    listed = await app.memory.list(project=project, namespaces=[NAMESPACE], limit=MAX_LISTED)
    return [memory for memory in listed if is_lesson(memory)]
