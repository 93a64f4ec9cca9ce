"""Has a model write down what sessions taught, and stores the lessons that pass the checks.

A lesson is a memory in the namespace `lessons` with the trust of an agent. It belongs to the
project of its session, and begins to exist when that session ends. A lesson that the user has
edited or pinned is the user's own: no session replaces it or takes it back.
"""

import asyncio
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from upwell.app.capture import by_session, strengthened
from upwell.capture.evidence import condensed, is_worth_reading, line_of
from upwell.capture.lesson_writing import (
    IN_WORDS,
    Dropped,
    KnownLesson,
    Lesson,
    LessonPrompt,
    RefusalReason,
    checked,
    drafts_in,
    prompt_for,
    telling_stems,
)
from upwell.capture.options import LessonOptions
from upwell.capture.sessions import without_excluded
from upwell.episodes.events import Kind as StepKind
from upwell.episodes.events import SessionEvent
from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.errors import LlmError, UsageError
from upwell.ground.ledger import EntryKind, TtlStore
from upwell.ground.llm import Chat, Completion
from upwell.ground.project import main_worktree_of, project_of
from upwell.ground.secrets.redact import redact
from upwell.ground.text.anchors import paths_in, relative_to, symbols_in
from upwell.ground.text.tokens import count
from upwell.ground.trace import LOG
from upwell.ground.types.memory import LESSON, Memory, Provenance, Trust
from upwell.memory.library import Library
from upwell.replay.transcripts import Transcript
from upwell.usage.events import CountedEvent as Counted
from upwell.usage.events import Counts

RECORD_SECONDS = 400 * 86_400.0
SPENT_SECONDS = 3 * 86_400.0
DUE_SECONDS = 14 * 86_400.0
CLAIM_SECONDS = 400.0
"""How long a session stays claimed by a process that was killed."""
COMPARED_EVENTS = 12
"""Sessions that begin with this many equal events are copies or forks of each other."""


class SessionRead(Struct, frozen=True, kw_only=True):
    """A past session: its events in order, and the file that they come from."""

    events: Sequence[SessionEvent]
    transcript: str = ""

    @property
    def name(self) -> str:
        return self.events[0].session

    @property
    def host(self) -> str:
        return self.events[0].host

    @property
    def ended_at(self) -> float:
        return self.events[-1].t

    @property
    def cwd(self) -> str | None:
        return next((event.cwd for event in self.events if event.cwd), None)

    @property
    def prompts(self) -> list[str]:
        return [event.text for event in self.events if event.kind is StepKind.PROMPT]

    @property
    def origin(self) -> str:
        """A digest that a fork or copy of the session shares with it."""
        events = [event for event in self.events if event.kind is not StepKind.START]
        told = [(each.kind, each.text, each.tool, each.args, each.out) for each in events]
        return digest(*map(repr, told[:COMPARED_EVENTS]))


def sessions_of(
    transcript: Transcript, events: Iterable[SessionEvent] | None = None
) -> list[SessionRead]:
    """The sessions in a transcript, whose `events` may be read on the way.

    Raises:
        UsageError, OSError: the file cannot be read.
    """
    found = by_session(transcript.events() if events is None else events)
    path = str(transcript.path)
    return [SessionRead(events=own, transcript=path) for own in found.values()]


class LessonRecords:
    """What the TTL store knows about lessons, and about the sessions that a model has read: derived
    data."""

    def __init__(self, ttl_store: TtlStore, clock: Clock) -> None:
        self._ttl_store = ttl_store
        self._clock = clock

    async def prompts_read(self, session: SessionRead) -> tuple[int, bool]:
        """How many prompts of the session, or of one that it copies, a model has read, and whether
        the session is such a copy."""
        own, origin = f"read:{_key(session)}", f"origin:{session.origin}"
        items = await self._ttl_store.get(EntryKind.LESSON, [own, origin])
        if own in items:
            return int(items[own].value), False
        if origin in items:
            prompts, _, name = items[origin].value.decode().partition(" ")
            return int(prompts), name != _key(session)
        return 0, False

    async def note_read(self, session: SessionRead) -> None:
        prompts = str(len(session.prompts))
        values = {
            f"read:{_key(session)}": prompts.encode(),
            f"origin:{session.origin}": f"{prompts} {_key(session)}".encode(),
        }
        await self._put(values)

    async def claim(self, session: SessionRead) -> bool:
        """Whether no other process reads the session now. It is then this one's to read."""
        return await self._ttl_store.compare_and_set(
            EntryKind.LESSON, f"claim:{_key(session)}", None, b"1", ttl_seconds=CLAIM_SECONDS
        )

    async def release(self, session: SessionRead) -> None:
        await self._ttl_store.delete(EntryKind.LESSON, [f"claim:{_key(session)}"])

    async def put_due(self, key: str, session: Mapping[str, object]) -> None:
        """Record a session whose lessons are due."""
        values = {f"due:{key}": json.dumps(session).encode()}
        await self._ttl_store.put(EntryKind.LESSON, values, ttl_seconds=DUE_SECONDS)

    async def due(self) -> list[Mapping[str, object]]:
        """The sessions whose lessons are due, the longest due first."""
        items = await self._ttl_store.scan(EntryKind.LESSON, "due:")
        return [json.loads(item.value) for item in items]

    async def drop_due(self, key: str) -> None:
        """Record that a session is no longer due."""
        await self._ttl_store.delete(EntryKind.LESSON, [f"due:{key}"])

    async def spend(self, tokens: int) -> None:
        key = f"spent:{self._today()}"
        await self._ttl_store.incr(EntryKind.LESSON, {key: tokens}, ttl_seconds=SPENT_SECONDS)

    async def spent_today(self) -> int:
        key = f"spent:{self._today()}"
        item = (await self._ttl_store.get(EntryKind.LESSON, [key])).get(key)
        return item.number if item else 0

    async def note_origin(self, memory_id: str, lesson: Lesson, session: SessionRead) -> None:
        by_number = {event.i: event for event in session.events}
        origin = {
            "session": session.name,
            "host": session.host,
            "transcript": session.transcript,
            "until": lesson.until,
            "lines": [line_of(by_number[i]) for i in lesson.evidence],
        }
        await self._put({f"from:{memory_id}": json.dumps(origin).encode()})

    async def origin(self, memory_id: str) -> Mapping[str, Any]:
        """Where a lesson comes from: `session`, `host`, `transcript`, `until` and `lines`, the
        events that show it. Empty if that is no longer recorded."""
        key = f"from:{memory_id}"
        item = (await self._ttl_store.get(EntryKind.LESSON, [key])).get(key)
        return dict(json.loads(item.value)) if item else {}

    async def refuse(self, memory_id: str) -> None:
        """No later session brings this lesson's text back."""
        await self._put({f"dropped:{memory_id}": b"1"})

    async def is_refused(self, memory_id: str) -> bool:
        return bool(await self._ttl_store.get(EntryKind.LESSON, [f"dropped:{memory_id}"]))

    async def _put(self, values: Mapping[str, bytes]) -> None:
        await self._ttl_store.put(EntryKind.LESSON, values, ttl_seconds=RECORD_SECONDS)

    def _today(self) -> str:
        return datetime.fromtimestamp(self._clock.now(), UTC).date().isoformat()


def _key(session: SessionRead) -> str:
    return digest(session.host, session.name)


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:32]


NAMESPACE = "lessons"
ID = "l_"
"""How the id of a lesson begins."""
RUN_SECONDS = 180.0
"""The time limit for one answer of the model."""
ANSWER_TOKENS = 1_000
"""What the answer is expected to take, for the budget."""
MAX_KNOWN = 10
MAX_TAGS = 24
MIN_SHARED_WORDS = 3
MAX_QUERY_CHARS = 1_500
MAX_EXAMPLES = 20

READ_BEFORE, TOO_SHORT, NO_PROJECT = "read before", "too short", "in no project"
COPY, NO_MODEL, BUSY = "a copy of another", "without a model", "being read by another process"
OVER_BUDGET = "beyond the budget"


class LessonGain(Struct):
    """What reading sessions brought. `skipped` counts sessions by the reason why no model read
    them, `dropped` lessons by the reason why they were not kept (`examples` are the first of them),
    and `faults` are the messages of models that failed."""

    read: int = 0
    kept: int = 0
    replaced: int = 0
    taken_back: int = 0
    confirmed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    skipped: Counter[str] = field(default_factory=Counter[str])
    dropped: Counter[str] = field(default_factory=Counter[str])
    examples: list[Dropped] = field(default_factory=list[Dropped])
    faults: list[str] = field(default_factory=list[str])
    redacted: tuple[str, ...] = ()

    @property
    def is_over_budget(self) -> bool:
        return bool(self.skipped[OVER_BUDGET])


class Model(Struct, frozen=True, kw_only=True):
    """A model, its name for people, and what a million of its input and output tokens cost.
    `is_agent`: it is that of an agent on this machine, rather than the endpoint."""

    chat: Chat
    name: str = ""
    is_agent: bool = False
    prices: tuple[float, float] = (0.0, 0.0)


class LessonReader:
    """Reads sessions with a model and stores what it learned.

    `model_of()` returns the model for a session of a host, and `is_excluded()` tells whether the
    user has excluded a folder. The TTL store records which sessions were read, where each lesson
    comes from, which lessons the user dropped, and what was spent today.
    """

    def __init__(
        self,
        library: Library,
        ttl_store: TtlStore,
        counts: Counts,
        options: LessonOptions,
        model_of: Callable[[str], Model | None],
        *,
        is_excluded: Callable[[str | None], bool] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._library = library
        self.records = LessonRecords(ttl_store, clock)
        self._counts = counts
        self._options = options
        self._model_of = model_of
        self._is_excluded = is_excluded

    async def read(
        self, session: SessionRead, gain: LessonGain, *, max_tokens: int | None = None
    ) -> None:
        """Have a model read a session, unless one has read it before. `max_tokens` is what all the
        sessions in `gain` may take, instead of the daily budget. Adds the outcome to `gain`.

        Raises:
            StoreError: a lesson or a record cannot be stored.
        """
        work = await self.work_on(session)
        if isinstance(work, str):
            gain.skipped[work] += 1
            return
        if not await self.records.claim(work.session):
            gain.skipped[BUSY] += 1
            return
        try:
            await self._read(work, gain, max_tokens)
        finally:
            await self.records.release(work.session)

    async def work_on(self, session: SessionRead) -> "Work | str":
        """What reading a session takes, or the reason why no model reads it."""
        session = replace(session, events=without_excluded(session.events, self._is_excluded))
        project = project_of(session.cwd)
        if project is None or not os.path.isdir(project):
            return NO_PROJECT
        if not is_worth_reading(session.events):
            return TOO_SHORT
        known_prompts, is_copy = await self.records.prompts_read(session)
        if known_prompts >= len(session.prompts):
            return COPY if is_copy else READ_BEFORE
        model = self._model_of(session.host)
        if model is None:
            return NO_MODEL
        return Work(session, main_worktree_of(project) or project, model, is_copy=is_copy)

    async def _read(self, work: "Work", gain: LessonGain, max_tokens: int | None) -> None:
        known = await self._known(work)
        prompt, expected = await asyncio.to_thread(work.prompt, known)
        spent = gain.tokens_in + gain.tokens_out
        if max_tokens is None:
            spent, max_tokens = await self.records.spent_today(), self._options.daily_tokens
        if spent + expected > max_tokens:
            gain.skipped[OVER_BUDGET] += 1
            return
        completion = await self._answer(work, prompt, expected, gain)
        if completion is None:
            return
        drafts = await asyncio.to_thread(drafts_in, completion.text)
        own = project_of(work.session.cwd)

        def is_own(folder: str | None) -> bool:
            """Whether a folder belongs to the project; one that is not known does."""
            return folder is None or own is None or project_of(folder) == own

        result = await asyncio.to_thread(
            lambda: checked(drafts, work.session.events, known, is_own=is_own)
        )
        for lesson in result.kept:
            await self._keep(lesson, work, gain)
        for fault in result.dropped:
            gain.dropped[str(fault.reason)] += 1
            gain.examples = [*gain.examples, fault][:MAX_EXAMPLES]
            self._count(f"dropped_{fault.reason}")
        await self.records.note_read(work.session)
        gain.read += 1

    async def _answer(
        self, work: "Work", prompt: LessonPrompt, expected: int, gain: LessonGain
    ) -> Completion | None:
        # Booked before the call, because a run that is killed has cost something as well.
        await self.records.spend(expected)
        self._count("asked")
        deadline = Deadline.after(RUN_SECONDS)
        try:
            completion = await asyncio.to_thread(
                work.model.chat.complete, prompt.system, prompt.user, deadline
            )
        except LlmError as error:
            self._count("failed")
            gain.faults.append(error.message)
            LOG.info("no lessons of a session: %s", error)
            return None
        tokens_in, tokens_out = completion.tokens_in, completion.tokens_out
        await self.records.spend(max(0, tokens_in + tokens_out - expected))
        gain.tokens_in += tokens_in
        gain.tokens_out += tokens_out
        price_in, price_out = work.model.prices
        price = tokens_in * price_in + tokens_out * price_out
        self._count("tokens_in", tokens_in)
        self._count("tokens_out", tokens_out)
        self._count("millionths", round(price))
        return completion

    async def _known(self, work: "Work") -> list[KnownLesson]:
        """The lessons of the project that are nearest to the session, and those that the session
        itself brought before it was resumed. Lessons of later sessions are not among them."""
        session, found = work.session, dict[str, Memory]()
        said = [event.text for event in session.events if event.kind is StepKind.SAY]
        for text in dict.fromkeys((session.prompts[0], session.prompts[-1], *said[-1:])):
            if text.strip():
                hits = await self._library.search(
                    redact(text[:MAX_QUERY_CHARS])[0],
                    limit=MAX_KNOWN,
                    project=work.project,
                    namespaces=[NAMESPACE],
                )
                found |= {
                    hit.memory.id: hit.memory
                    for hit in hits
                    if is_lesson(hit.memory)
                    and hit.memory.project == work.project
                    and (hit.memory.created_at or 0.0) <= session.ended_at
                }
        own = [memory for memory in found.values() if memory.provenance.session == session.name]
        others = [memory for memory in found.values() if memory not in own]
        return [
            KnownLesson(f"L{number}", memory.id, memory.text)
            for number, memory in enumerate([*own, *others][:MAX_KNOWN], start=1)
        ]

    async def _keep(self, lesson: Lesson, work: "Work", gain: LessonGain) -> None:
        target = await self._library.store.get(lesson.replaces) if lesson.replaces else None
        if target is not None and not _is_replaceable_by(lesson, target):
            target = None
        if not lesson.text:
            if target is not None and await self._library.delete(target.id):
                gain.taken_back += 1
                self._count("taken_back")
            return
        memory = _memory(lesson, work, target)
        if await self.records.is_refused(memory.id):
            return
        if (earlier := await self._library.store.get(memory.id)) is not None:
            ended_at, name = work.session.ended_at, work.session.name
            is_later = ended_at > (earlier.updated_at or 0.0)
            if is_later and not work.is_copy and earlier.provenance.session != name:
                await self._library.store.add([strengthened(earlier, ended_at)])
                gain.confirmed += 1
                self._count("confirmed")
            return
        try:
            await self._library.add(memory)
        except UsageError as error:
            LOG.info("a lesson was not stored: %s", error)
            return
        await self.records.note_origin(memory.id, lesson, work.session)
        gain.kept += 1
        gain.redacted = tuple(dict.fromkeys([*gain.redacted, *lesson.redacted]))
        self._count("kept")
        if target is not None:
            gain.replaced += 1
            self._count("replaced")

    def _count(self, kind: str, by: int = 1) -> None:
        if by:
            self._counts.add(Counted.LESSON, kind, by=by)


class Work(Struct, frozen=True):
    """A session to read, the project to which its lessons belong, and its model."""

    session: SessionRead
    project: str
    model: Model
    is_copy: bool

    def prompt(self, known: Sequence[KnownLesson] = ()) -> tuple[LessonPrompt, int]:
        """What the model is asked, and the tokens that the question and its answer take."""
        transcript = condensed(self.session.events)
        prompt = prompt_for(transcript, known, os.path.basename(self.project))
        return prompt, count(prompt.system) + count(prompt.user) + ANSWER_TOKENS


def is_lesson(memory: Memory) -> bool:
    """Whether a memory is a lesson, even one that the user has edited."""
    return memory.namespace == NAMESPACE and memory.provenance.door == LESSON


def reasons_in_words(dropped: Mapping[str, int]) -> list[str]:
    """Why lessons were not kept, most frequent first: `3 × names no event of the session`."""
    rows = sorted(dropped.items(), key=lambda item: -item[1])
    return [f"{number} × {IN_WORDS[RefusalReason(reason)]}" for reason, number in rows]


def _memory(lesson: Lesson, work: Work, target: Memory | None) -> Memory:
    session, project = work.session, work.project
    # What brought the earlier lesson up brings up the one that takes its place.
    triggers = dict.fromkeys([*lesson.triggers, *(target.tags if target else ())])
    cues = " ".join([lesson.text, *triggers])
    paths = dict.fromkeys(relative_to(path, project) for path in paths_in(cues))
    return Memory(
        # The same for equal texts in one project.
        id=f"{ID}{digest(project, ' '.join(lesson.text.lower().split()))[:20]}",
        text=lesson.text,
        namespace=NAMESPACE,
        tags=tuple(triggers)[:MAX_TAGS],
        paths=tuple(paths),
        symbols=symbols_in(cues),
        project=project,
        source=f"session:{session.name[:40]}",
        provenance=Provenance(door=LESSON, tool=lesson.kind, session=session.name),
        trust=Trust.AGENT,
        supersedes=target.id if target else None,
        created_at=session.ended_at,
        updated_at=session.ended_at,
    )


def _is_replaceable_by(lesson: Lesson, target: Memory) -> bool:
    """Whether `target` is a model's lesson about the same: models mix up keys. A lesson that takes
    another back has no text, and is believed."""
    if not is_lesson(target) or target.trust is not Trust.AGENT or target.pinned:
        return False
    if not lesson.text:
        return True
    old = telling_stems((target.text, *target.tags))
    new = telling_stems((lesson.text, *lesson.triggers))
    return len(old & new) >= MIN_SHARED_WORDS
