"""What is recorded about the sessions that a model has read, and about their lessons: derived data,
kept in the TTL store.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from upwell.capture.lessons.checks import Lesson
from upwell.capture.lessons.condense import line_of
from upwell.episodes.events import Kind as StepKind
from upwell.episodes.events import SessionEvent
from upwell.ground.clock import Clock
from upwell.ground.ttl_store import EntryKind, TtlStore

RECORD_SECONDS = 400 * 86_400.0
SPENT_SECONDS = 3 * 86_400.0
DUE_SECONDS = 14 * 86_400.0
_DUE = "due:"
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


class LessonRecords:
    """What the TTL store knows about lessons."""

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
        values = {f"{_DUE}{key}": json.dumps(session).encode()}
        await self._ttl_store.put(EntryKind.LESSON, values, ttl_seconds=DUE_SECONDS)

    async def due(self) -> list[Mapping[str, object]]:
        """The sessions whose lessons are due, the longest due first."""
        items = await self._ttl_store.scan(EntryKind.LESSON, _DUE)
        return [json.loads(item.value) for item in items]

    async def read_due(self, key: str) -> None:
        """Record that a session is no longer due."""
        await self._ttl_store.delete(EntryKind.LESSON, [f"{_DUE}{key}"])

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

    async def origin(self, memory_id: str) -> Mapping[str, object]:
        key = f"from:{memory_id}"
        item = (await self._ttl_store.get(EntryKind.LESSON, [key])).get(key)
        return dict(json.loads(item.value)) if item else {}

    async def refuse(self, memory_id: str) -> None:
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
