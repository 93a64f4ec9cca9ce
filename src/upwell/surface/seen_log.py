"""The log of delivered memories, shared by every door and process of a home.

An entry is keyed by memory id and content hash, so an edited memory counts as new, and by its
audience: a principal, a subagent, or one session at its start. An episode goes to one session: the
next one that meets its trigger has not heard it. Automatic doors read and write the log; explicit
requests only write it.
"""

from collections.abc import Sequence

from upwell.ground.host_sessions import is_subagents
from upwell.ground.ttl_store import Item, Kind, TtlStore
from upwell.ground.types.memory import Hit, Memory

_SEPARATOR = "\n"


class SeenLog:
    """Remembers deliveries for `ttl_seconds` (seed 000: 7 days); 0 switches the log off."""

    def __init__(self, ttl_store: TtlStore, ttl_seconds: float) -> None:
        self._ttl_store = ttl_store
        self._ttl_seconds = ttl_seconds

    async def fresh(self, hits: Sequence[Hit], session: str = "", principal: str = "") -> list[Hit]:
        """The hits that neither this principal nor this session's start has received, in order. A
        subagent has received only its own deliveries."""
        if self._ttl_seconds <= 0:
            return list(hits)
        keys = [_key(hit.memory, session, principal) for hit in hits]
        start_keys = [_session_key(_content_key(hit.memory), session) for hit in hits]
        delivered = await self._ttl_store.get(Kind.SEEN, [*keys, *start_keys])
        return [
            hit
            for hit, *candidates in zip(hits, keys, start_keys, strict=True)
            if delivered.keys().isdisjoint(candidates)
        ]

    async def record(self, memories: Sequence[Memory], session: str, principal: str = "") -> None:
        """These memories went to a principal, or to one subagent only."""
        if self._ttl_seconds > 0:
            value = session.encode(errors="replace")
            entries = {_key(memory, session, principal): value for memory in memories}
            await self._ttl_store.put(Kind.SEEN, entries, ttl_seconds=self._ttl_seconds)

    async def record_at_start(self, memories: Sequence[Memory], session: str) -> None:
        """These memories opened this session; other sessions may still receive them."""
        if self._ttl_seconds > 0 and memories:
            entries = {_session_key(_content_key(memory), session): b"" for memory in memories}
            await self._ttl_store.put(Kind.SEEN, entries, ttl_seconds=self._ttl_seconds)

    async def withdraw(self, memories: Sequence[Memory], session: str, principal: str = "") -> None:
        """Undo `record` for memories that did not reach the agent."""
        keys = [_key(memory, session, principal) for memory in memories]
        await self._ttl_store.delete(Kind.SEEN, keys)

    async def withdraw_at_start(self, memories: Sequence[Memory], session: str) -> None:
        """Undo `record_at_start`."""
        keys = [_session_key(_content_key(memory), session) for memory in memories]
        await self._ttl_store.delete(Kind.SEEN, keys)

    async def ids_of(self, session: str) -> list[str]:
        """Ids of the memories that this session received, the latest last."""
        keys = [item.key.rpartition(_SEPARATOR)[2] for item in await self._entries_of(session)]
        return list(dict.fromkeys(key.rpartition(":")[0] for key in keys))

    async def forget(self, session: str) -> None:
        """Allow everything that this session received to be said again."""
        await self._ttl_store.delete(
            Kind.SEEN, [item.key for item in await self._entries_of(session)]
        )

    async def renew(self, memory_id: str) -> None:
        """Restart the time to live of a memory's entries: its reader already knew it."""
        if self._ttl_seconds > 0:
            for item in await self._ttl_store.scan(Kind.SEEN, f"{memory_id}:"):
                await self._ttl_store.touch(Kind.SEEN, item.key, ttl_seconds=self._ttl_seconds)

    async def _entries_of(self, session: str) -> list[Item]:
        value, prefix = session.encode(errors="replace"), _session_key("", session)
        items = await self._ttl_store.scan(Kind.SEEN)
        return [item for item in items if item.value == value or item.key.startswith(prefix)]


def _key(memory: Memory, session: str, principal: str) -> str:
    if is_subagents(session) or memory.triggers:
        return _session_key(_content_key(memory), session)
    content_key = _content_key(memory)
    return f"{content_key}@{principal}" if principal else content_key


def _content_key(memory: Memory) -> str:
    return f"{memory.id}:{memory.content_hash}"


def _session_key(content_key: str, session: str) -> str:
    return f"{session}{_SEPARATOR}{content_key}"
