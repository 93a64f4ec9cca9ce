"""The log of delivered memories, shared by every door and process in a home.

Prompts and tool calls add each memory to a context window only once: a delivery leaves an entry for
the session until the session's context is compacted. A second entry, for the principal, lasts
`surface.dedup_ttl_seconds` and makes repeats in other sessions rank lower. Repeated episodes keep
their rank, because they answer an exact trigger. Keys contain the content hash, so an edited memory
counts as new. Prompts and tool calls read and write the log. Explicit requests only write it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from upwell.ground.host_sessions import is_of_subagent
from upwell.ground.ttl_store import Entries, EntryKind, Item, TtlStore
from upwell.ground.types.memory import Hit, Memory

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
