"""The log of delivered memories, shared by every door and process in a home.

Prompts and tool calls add each memory to a context window only once: a delivery leaves an entry for
the session until the session's context is compacted. A second entry, for the principal, lasts
`surface.dedup_ttl_seconds` and makes repeats in other sessions rank lower. Repeated episodes keep
their rank, because they answer an exact trigger. Keys contain the content hash, so an edited memory
counts as new. Prompts and tool calls read and write the log. Explicit requests only write it.

Short-lived values of this process's sessions. If a value is lost, the worst effect is that
something is repeated.

Keeps memories that were found too late for their call, and offers them to a later cue about the
same thing.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.host_sessions import is_of_subagent
from upwell.ground.ledger import Entries, EntryKind, Item, TtlStore
from upwell.ground.types.cue import AUTOMATIC_DOORS, Cue, Door
from upwell.ground.types.memory import Hit, Memory, Query
from upwell.memory.base import MemoryReader

MAX_SESSIONS = 5_000


class SessionState[T]:
    """Values by session and key, of at most `max_sessions` sessions. The least recently written
    session is dropped first."""

    def __init__(self, *, max_sessions: int = MAX_SESSIONS, clock: Clock = SYSTEM_CLOCK) -> None:
        self._max_sessions = max_sessions
        self._clock = clock
        self._sessions: OrderedDict[str, dict[str, tuple[T, float]]] = OrderedDict()

    def get(self, session: str) -> dict[str, T]:
        """Return the session's live values, by key, oldest first."""
        now = self._clock.monotonic()
        values = self._sessions.get(session, {})
        return {key: value for key, (value, expires_at) in values.items() if expires_at > now}

    def put(self, session: str, value: T, *, key: str = "", ttl_seconds: float) -> None:
        """Set the value and restart its time to live."""
        live = self.get(session)
        values = {name: self._sessions[session][name] for name in live if name != key}
        self._sessions[session] = {**values, key: (value, self._clock.monotonic() + ttl_seconds)}
        self._sessions.move_to_end(session)
        while len(self._sessions) > self._max_sessions or not self.get(next(iter(self._sessions))):
            self._sessions.popitem(last=False)

    def pop(self, session: str, key: str = "") -> T | None:
        """Remove and return the value, or None if it does not exist or has expired."""
        value = self.get(session).get(key)
        self._sessions.get(session, {}).pop(key, None)
        return value


LATE_SECONDS = 60.0
"""How long late hits remain on offer."""


class _Offer(Struct, frozen=True):
    """`changes` records what `MemoryReader.changes()` returned. The hits lapse when it
    returns something else."""

    tool: str | None
    query: Query
    judged: bool
    hits: tuple[Hit, ...]
    changes: str


class LateHits:
    """The late hits of each session. A later cue gets them if it is about one of the same files. If
    neither cue names a file, both must have the same words and the same tool. The hits are offered
    only once, and not after any memory has changed."""

    def __init__(self, reader: MemoryReader, clock: Clock) -> None:
        self._offers = SessionState[_Offer](clock=clock)
        self._reader = reader

    async def keep(
        self, cue: Cue, query: Query, hits: Sequence[Hit], *, judged: bool = False
    ) -> None:
        """Keep the hits that came too late for this cue, except standing rules, which
        `StandingRules` delivers. With `judged`, the session's next call gets the hits, whatever it
        is about."""
        if not cue.session or all(hit.memory.pinned for hit in hits):
            return
        # `changes()` is called before `known()`, so that the hits also lapse if a memory is deleted
        # in between.
        changes = repr(await self._reader.changes())
        existing = [hit for hit in hits if not hit.memory.pinned and await self._exists(hit)]
        offer = _Offer(cue.tool, query, judged, tuple(existing), changes)
        self._offers.put(cue.session, offer, ttl_seconds=LATE_SECONDS)

    async def take(self, cue: Cue, query: Query) -> list[Hit]:
        """The session's late hits for this cue. Any prompt or tool call that is about to search
        ends the offer, because its own search finds the current memories. An explicit request gets
        no late hits."""
        if cue.door not in AUTOMATIC_DOORS or not cue.session:
            return []
        offer = self._offers.pop(cue.session)
        if offer is None or not _is_about_the_same(offer, cue, query):
            return []
        return await self._current(offer)

    async def take_judged(self, cue: Cue) -> tuple[Query, list[Hit]] | None:
        """The query and the hits from a late verdict, if this cue is a call. If any memory has
        changed, there are no hits. A prompt may change the subject, so it gets only what `take()`
        returns."""
        if cue.door != Door.TOOL or not cue.session:
            return None
        offer = self._offers.get(cue.session).get("")
        if offer is None or not offer.judged:
            return None
        self._offers.pop(cue.session)
        return offer.query, await self._current(offer)

    async def _current(self, offer: _Offer) -> list[Hit]:
        return list(offer.hits) if repr(await self._reader.changes()) == offer.changes else []

    async def _exists(self, hit: Hit) -> bool:
        return await self._reader.known(hit.memory.id) is not None


def _is_about_the_same(offer: _Offer, cue: Cue, query: Query) -> bool:
    if set(offer.query.paths) & set(query.paths):
        return True
    same_words = bool(query.texts) and query.texts == offer.query.texts
    return same_words and not (query.paths or offer.query.paths) and cue.tool == offer.tool


SESSION_SECONDS = 30 * 86_400.0
"""The lifetime of a session's entries. Hosts may resume a session with its context weeks later."""
RESERVED_SECONDS = 60.0
"""The lifetime of an entry whose delivery is pending. It is short, so that a process that dies
before the delivery does not silence a memory."""
KNOWN = b"\0known"
"""The value of a principal's entry after the rating `already_known`."""
_SEPARATOR = "\n"

Ignored = Callable[[str], Awaitable[bool]]
"""Returns whether agents repeatedly ignored the memory with this id."""


async def never_ignored(memory_id: str) -> bool:
    """Return False, for a home that does not watch how memories are used."""
    del memory_id
    return False


class SeenLog:
    """Records deliveries. A delivery affects other sessions for `ttl_seconds` (seed 000: 7 days).
    With 0, the whole log is off."""

    def __init__(
        self, ttl_store: TtlStore, ttl_seconds: float, ignored: Ignored = never_ignored
    ) -> None:
        self._ttl_store = ttl_store
        self._ttl_seconds = ttl_seconds
        self._ignored = ignored

    async def fresh(self, hits: Sequence[Hit], session: str = "", principal: str = "") -> list[Hit]:
        """The hits that this session has not received. Hits that another session of the principal
        received come last, or are left out if the principal knew or ignored them. A subagent has
        its own context and may receive every memory once."""
        if self._ttl_seconds <= 0:
            return list(hits)
        own_keys = [_session_key(hit.memory, session, principal) for hit in hits]
        shared_keys = [_shared_key(hit.memory, principal) for hit in hits]
        marks = [_mark(hit.memory.id, principal) for hit in hits]
        entries = await self._ttl_store.get(EntryKind.SEEN, [*own_keys, *shared_keys, *marks])
        new, repeated = dict[int, Hit](), dict[int, Hit]()
        keys = zip(hits, own_keys, shared_keys, marks, strict=True)
        for place, (hit, own_key, shared_key, mark) in enumerate(keys):
            shared = entries.get(mark) or entries.get(shared_key)
            if session and own_key in entries:
                continue
            if shared is None or shared.value == _value(session) or is_of_subagent(session):
                new[place] = hit
            elif shared.value != KNOWN:
                repeated[place] = hit
        # Only the owner's sessions are watched, so only they take ignored memories into account.
        if repeated and not principal:
            asked = (self._ignored(hit.memory.id) for hit in repeated.values())
            ignored = dict(zip(repeated, await asyncio.gather(*asked), strict=True))
            repeated = {place: hit for place, hit in repeated.items() if not ignored[place]}
        new |= {place: hit for place, hit in repeated.items() if hit.memory.triggers}
        others = [hit for place, hit in repeated.items() if place not in new]
        return [*(new[place] for place in sorted(new)), *others]

    async def reserve(self, memories: Sequence[Memory], session: str, principal: str = "") -> None:
        """Record that these memories are on their way to a session. They count as delivered for a
        minute."""
        if self._ttl_seconds > 0:
            await self._put(memories, session, principal, RESERVED_SECONDS)

    async def record(self, memories: Sequence[Memory], session: str, principal: str = "") -> None:
        """Record that a session received these memories."""
        if self._ttl_seconds <= 0 or not memories:
            return
        entries = [_session_entries(memories, session, principal, SESSION_SECONDS)]
        if not is_of_subagent(session):
            keys = [_shared_key(memory, principal) for memory in memories]
            shared = dict.fromkeys(keys, _value(session))
            entries.append(Entries(EntryKind.SEEN, shared, self._ttl_seconds))
        await self._ttl_store.put_all(*entries)

    async def record_at_start(self, memories: Sequence[Memory], session: str) -> None:
        """Record that a session began with these memories. This does not change their rank in other
        sessions."""
        if self._ttl_seconds > 0:
            await self._put(memories, session, "", SESSION_SECONDS)

    async def withdraw(self, memories: Sequence[Memory], session: str, principal: str = "") -> None:
        """Undo `reserve()`, `record()` or `record_at_start()` for memories that did not arrive."""
        keys = [_session_key(memory, session, principal) for memory in memories]
        shared_keys = [_shared_key(memory, principal) for memory in memories]
        entries = await self._ttl_store.get(EntryKind.SEEN, shared_keys)
        # An entry whose value is another session is kept, because that session received the memory.
        own = [key for key, entry in entries.items() if entry.value == _value(session)]
        await self._ttl_store.delete(EntryKind.SEEN, [*keys, *own])

    async def ids_of(self, session: str) -> list[str]:
        """The ids of the memories that this session received, the latest last."""
        keys = [item.key.rpartition(_SEPARATOR)[2] for item in await self._entries_of(session)]
        return list(dict.fromkeys(key.rpartition(":")[0] for key in keys))

    async def forget(self, session: str) -> None:
        """Allow everything that this session received to surface in it again."""
        await self._ttl_store.delete(
            EntryKind.SEEN, [item.key for item in await self._entries_of(session)]
        )

    async def known(self, memory_id: str, principal: str = "") -> None:
        """Record that a principal already knew this memory. Until the entry expires, the
        principal's sessions do not receive the memory, but their subagents may. If no delivery was
        recorded (for example, after an explicit request outside any session), the entry's key has
        no content hash, so the entry still applies after the text is edited."""
        if self._ttl_seconds > 0:
            entries = await self._ttl_store.scan(EntryKind.SEEN, f"{memory_id}:")
            marked = {
                entry.key: KNOWN
                for entry in entries
                if _SEPARATOR not in entry.key and entry.key.partition("@")[2] == principal
            }
            marked = marked or {_mark(memory_id, principal): KNOWN}
            await self._ttl_store.put(EntryKind.SEEN, marked, ttl_seconds=self._ttl_seconds)

    async def _put(
        self, memories: Sequence[Memory], session: str, principal: str, ttl_seconds: float
    ) -> None:
        if session and memories:
            await self._ttl_store.put_all(
                _session_entries(memories, session, principal, ttl_seconds)
            )

    async def _entries_of(self, session: str) -> list[Item]:
        return await self._ttl_store.scan(EntryKind.SEEN, session + _SEPARATOR)


def _session_entries(
    memories: Sequence[Memory], session: str, principal: str, ttl_seconds: float
) -> Entries:
    keys = [_session_key(memory, session, principal) for memory in memories] if session else []
    return Entries(EntryKind.SEEN, dict.fromkeys(keys, b""), ttl_seconds)


def _value(session: str) -> bytes:
    return session.encode(errors="replace")


def _shared_key(memory: Memory, principal: str) -> str:
    return _of(f"{memory.id}:{memory.content_hash}", principal)


def _mark(memory_id: str, principal: str) -> str:
    return _of(f"{memory_id}:", principal)


def _of(key: str, principal: str) -> str:
    return f"{key}@{principal}" if principal else key


def _session_key(memory: Memory, session: str, principal: str) -> str:
    return f"{session}{_SEPARATOR}{_shared_key(memory, principal)}"
