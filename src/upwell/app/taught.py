"""What past sessions taught: how much of each kind, what matters most, and what each one taught."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import IntEnum

from msgspec import Struct

from upwell.app.lessons import NAMESPACE, is_lesson
from upwell.app.surfacing import LearningApp
from upwell.capture.inbox import WHY_COMMAND, WHY_RULE, Proposal
from upwell.ground.errors import StoreError
from upwell.ground.text.format import counted
from upwell.ground.types.memory import Memory
from upwell.sessions.index import SessionScope
from upwell.sessions.state import ID as STATE_ID

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


def by_session(found: Iterable[Taught]) -> dict[str, list[Taught]]:
    """What each session taught, keyed by its name."""
    sessions: defaultdict[str, list[Taught]] = defaultdict(list)
    for taught in found:
        for name in taught.sessions:
            sessions[name].append(taught)
    return dict(sessions)


async def sessions_read(app: LearningApp) -> int:
    """How many past sessions were read: those in the index, or else the transcripts."""
    if app.config.home.sessions_db.exists():
        with suppress(StoreError):
            return (await app.past_sessions().counts())[0]
    return (await app.session_capture().past()).transcripts


async def everything_taught(app: LearningApp) -> list[Taught]:
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


async def learned(app: LearningApp) -> LearnedFromSessions:
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


async def _states(app: LearningApp) -> list[Taught]:
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
