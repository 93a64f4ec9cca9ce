"""What past sessions taught: how much of each kind, what matters most, and what each one taught.
Then the lessons among it as a person works with them: listed, edited, pinned, dropped.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from upwell.app.lessons import ID, NAMESPACE, is_lesson
from upwell.app.memory import MemoryApp
from upwell.capture.inbox import WHY_COMMAND, WHY_RULE, Proposal
from upwell.ground.errors import StoreError
from upwell.ground.text.words import counted, iso
from upwell.ground.types.memory import Memory, Trust
from upwell.sessions.index import SessionScope
from upwell.sessions.record import ID as STATE_ID

FOREMOST = 5
MAX_OF_KIND = 3
"""At most so many of the foremost are of one kind, unless there is nothing else."""
MAX_STATES, LATEST = 3, 20
MAX_LISTED = 10_000
NAMESPACES = (NAMESPACE, "learnings", "patterns")
"""Where what sessions taught is stored (`capture/sessions.py`)."""


class Teaching(IntEnum):
    """The kinds of what sessions taught. Of two that were taught equally often, the first matters
    more: what the user demanded, what a model understood, what was measured, what was going on."""

    RULE = 0
    LESSON = 1
    COMMAND = 2
    MISTAKE = 3
    STATE = 4


LABELS = {
    Teaching.RULE: "rule you gave",
    Teaching.LESSON: "lesson",
    Teaching.COMMAND: "command that works here",
    Teaching.MISTAKE: "mistake that sessions repeat",
    Teaching.STATE: "where the work stands",
}


class Taught(Struct, frozen=True, kw_only=True):
    """Something that `times` sessions taught, of which `sessions` are known by name, the latest
    first. `at` is when one last did. `waits`: it is a proposal in the inbox."""

    kind: Teaching
    id: str
    text: str
    label: str
    project: str | None = None
    sessions: tuple[str, ...] = ()
    times: int = 1
    at: float = 0.0
    waits: bool = False


class LearnedFromSessions(Struct, frozen=True, kw_only=True):
    """What a home learned from past sessions: how many were read, what they gave, each part in
    words, and what of it matters most. `stored` of the lessons, commands and rules are memories,
    and `waiting` are proposals."""

    sessions: int
    parts: tuple[str, ...] = ()
    foremost: tuple[Taught, ...] = ()
    stored: int = 0
    waiting: int = 0

    @property
    def sentence(self) -> str:
        """How many sessions were read, and what they gave."""
        return f"{counted(self.sessions, 'session')} read: {', '.join(self.parts) or 'no finding'}"


def foremost(found: Iterable[Taught], limit: int = FOREMOST) -> list[Taught]:
    """What matters most. First comes what the most sessions taught, since it would have helped the
    most often; then the order of the kinds, then the latest. No kind crowds out the others."""
    ranked = sorted(found, key=lambda taught: (-taught.times, taught.kind, -taught.at, taught.id))
    chosen: list[Taught] = []
    rest: list[Taught] = []
    for taught in ranked:
        alike = sum(other.kind is taught.kind for other in chosen)
        (chosen if alike < MAX_OF_KIND else rest).append(taught)
    kept = {taught.id for taught in [*chosen, *rest][:limit]}
    return [taught for taught in ranked if taught.id in kept]


def taught_by_session(found: Iterable[Taught]) -> dict[str, list[Taught]]:
    """What each session taught, keyed by its name."""
    sessions: defaultdict[str, list[Taught]] = defaultdict(list)
    for taught in found:
        for name in taught.sessions:
            sessions[name].append(taught)
    return dict(sessions)


async def sessions_read(app: MemoryApp) -> int:
    """How many past sessions were read: those in the index, or else the transcripts."""
    if app.config.home.sessions_db.exists():
        with suppress(StoreError):
            return (await app.past_sessions().counts())[0]
    return (await app.session_capture().past()).transcripts


async def everything_taught(app: MemoryApp) -> list[Taught]:
    """The lessons, commands and rules from sessions, including proposals.

    Raises:
        StoreError, StoreUnwritable: the store or the inbox cannot be read.
    """
    memories = await app.memory.list(namespaces=NAMESPACES, limit=MAX_LISTED)
    kinds = {memory.id: kind for memory in memories if (kind := _kind(memory)) is not None}
    old = await app.memory.store.superseded(list(kinds))
    stored = [
        _of_memory(each, kinds[each.id]) for each in memories if each.id in kinds.keys() - old
    ]
    waiting = (_of_proposal(each) for each in app.inbox().waiting())
    return [*stored, *(taught for taught in waiting if taught)]


async def learned(app: MemoryApp) -> LearnedFromSessions:
    """What this home learned from past sessions.

    Raises:
        StoreError, StoreUnwritable: the store or the inbox cannot be read.
    """
    found = await everything_taught(app)
    places = await app.session_capture().places_known()
    lessons, commands, mistakes, rules = (
        sum(taught.kind is kind for taught in found)
        for kind in (Teaching.LESSON, Teaching.COMMAND, Teaching.MISTAKE, Teaching.RULE)
    )
    parts = (
        (lessons, "lesson", ""),
        (commands, "command that works here", "commands that work here"),
        (mistakes, LABELS[Teaching.MISTAKE], "mistakes that sessions repeat"),
        (rules, "rule you gave", "rules you gave"),
        (places, "place of files and symbols", "places of files and symbols"),
    )
    shown = foremost(found)
    if len(shown) < FOREMOST:
        shown = foremost([*found, *await _states(app)])
    return LearnedFromSessions(
        sessions=await sessions_read(app),
        parts=tuple(counted(number, one, many) for number, one, many in parts if number),
        foremost=tuple(shown),
        stored=sum(not taught.waits for taught in found),
        waiting=sum(taught.waits for taught in found),
    )


async def _states(app: MemoryApp) -> list[Taught]:
    """Where the latest sessions that came to a conclusion left their work."""
    if not app.config.home.sessions_db.exists():
        return []
    latest = await app.past_sessions().listed(SessionScope(), None, LATEST)
    names = [each.session.name for each in latest if each.conclusion][:MAX_STATES]
    states = [await app.memory.get(f"{STATE_ID}{name}") for name in names]
    return [_of_memory(state, Teaching.STATE) for state in states if state]


def _kind(memory: Memory) -> Teaching | None:
    if is_lesson(memory):
        return Teaching.LESSON
    is_captured = memory.provenance.door == "capture"
    return _of_capture(memory.provenance.tool, memory.triggers) if is_captured else None


def _of_capture(why: str, triggers: Sequence[str]) -> Teaching | None:
    """The kind of a finding. Only a rule that follows from mistakes has triggers."""
    if why == WHY_RULE:
        return Teaching.MISTAKE if triggers else Teaching.RULE
    return Teaching.COMMAND if why == WHY_COMMAND else None


def _of_memory(memory: Memory, kind: Teaching) -> Taught:
    origin = memory.provenance
    return Taught(
        kind=kind,
        id=memory.id,
        text=memory.text,
        label=f"{LABELS[kind]}: {origin.tool}" if kind is Teaching.LESSON else LABELS[kind],
        project=memory.project,
        sessions=(origin.session,) if origin.session else (),
        times=memory.occurrences,
        at=memory.updated_at or 0.0,
    )


def _of_proposal(proposal: Proposal) -> Taught | None:
    kind = _of_capture(proposal.why, proposal.triggers)
    if kind is None:
        return None
    seen: Sequence[str] = [name for name, _ in reversed(proposal.seen)]
    return Taught(
        kind=kind,
        id=proposal.id,
        text=proposal.text,
        label=LABELS[kind],
        project=proposal.project,
        sessions=tuple(dict.fromkeys(filter(None, [proposal.session, *seen]))),
        times=proposal.occurrences,
        at=proposal.at or 0.0,
        waits=True,
    )


async def rows(app: MemoryApp, project: str | None = None) -> list[dict[str, Any]]:
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


async def edit(app: MemoryApp, memory_id: str, text: str) -> Memory:
    """Change a lesson's text. It is then the user's own: no session replaces it.

    Raises:
        StoreError: there is no such lesson.
        UsageError: the text is empty.
    """
    changed = replace(await _lesson(app, memory_id), trust=Trust.USER, text=text)
    await app.memory.update(changed)
    return changed


async def pin(app: MemoryApp, memory_id: str) -> Memory:
    """Make a lesson a standing rule of its project.

    Raises:
        StoreError: there is no such lesson.
    """
    changed = replace(await _lesson(app, memory_id), trust=Trust.USER, pinned=True)
    await app.memory.update(changed)
    return changed


async def drop(app: MemoryApp, memory_id: str) -> Memory:
    """Move a lesson to the trash. No later session brings it back.

    Raises:
        StoreError: there is no such lesson.
    """
    memory = await _lesson(app, memory_id)
    await app.lessons().records.refuse(memory.id)
    await app.memory.delete(memory.id)
    return memory


async def origin_lines(app: MemoryApp, memory_id: str) -> list[str]:
    """Where a lesson comes from, line by line: its session, and the events that show it.

    Raises:
        StoreError: there is no such lesson.
    """
    memory = await _lesson(app, memory_id)
    origin = await app.lessons().records.origin(memory.id)
    host = f" of {origin['host']}" if origin.get("host") else ""
    at = f", ended {iso(memory.created_at)}" if memory.created_at else ""
    lines = [memory.text, f"session {memory.provenance.session}{host}{at}"]
    if memory.occurrences > 1:
        lines.append(f"{memory.occurrences} sessions taught it")
    if memory.supersedes:
        lines.append(f"replaces {memory.supersedes}")
    if origin.get("until"):
        lines.append(f"holds until: {origin['until']}")
    if origin.get("transcript"):
        lines.append(f"transcript {origin['transcript']}")
    return [*lines, *(f"  {line}" for line in origin.get("lines", ()))]


async def _lesson(app: MemoryApp, memory_id: str) -> Memory:
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


async def _listed(app: MemoryApp, project: str | None) -> list[Memory]:
    listed = await app.memory.list(project=project, namespaces=[NAMESPACE], limit=MAX_LISTED)
    return [memory for memory in listed if is_lesson(memory)]
