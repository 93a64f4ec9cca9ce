"""What has been said already: one ledger for every door and process, on the shelf.

Keyed by memory id and content, so an edited memory is new again, and by who was told, or which
session as it began. Automatic doors look and write; `ask` only writes.
"""

from collections.abc import Sequence

from upwell.ground.sessions import is_subagents
from upwell.ground.shelf import Item, Shelf
from upwell.ground.types import Hit, Memory

KIND = "seen"
_BETWEEN = "\n"


class Seen:
    """The ledger of surfaced memories, with a time of life of `ttl_seconds` (seed 000: 7 days)."""

    def __init__(self, shelf: Shelf, ttl_seconds: float) -> None:
        self._shelf = shelf
        self._ttl_seconds = ttl_seconds

    async def fresh(self, hits: Sequence[Hit], session: str = "", who: str = "") -> list[Hit]:
        """Those of `hits` that have not been said to the principal `who` within the time of life,
        in order; nor to this session as it began. A subagent heard only what was said to itself."""
        if self._ttl_seconds <= 0:
            return list(hits)
        keys = [_said(hit.memory, session, who) for hit in hits]
        here = [_here(_key(hit.memory), session) for hit in hits]
        known = await self._shelf.get(KIND, [*keys, *here])
        return [
            hit
            for hit, *said in zip(hits, keys, here, strict=True)
            if known.keys().isdisjoint(said)
        ]

    async def told(self, memories: Sequence[Memory], session: str, who: str = "") -> None:
        """Write down that these were said to a principal; or to one subagent only."""
        if self._ttl_seconds > 0:
            told = session.encode(errors="replace")
            said = {_said(memory, session, who): told for memory in memories}
            await self._shelf.put(KIND, said, ttl_seconds=self._ttl_seconds)

    async def told_here(self, memories: Sequence[Memory], session: str) -> None:
        """These were said to this session; others may still hear them."""
        if self._ttl_seconds > 0 and memories:
            said = {_here(_key(memory), session): b"" for memory in memories}
            await self._shelf.put(KIND, said, ttl_seconds=self._ttl_seconds)

    async def untold(self, memories: Sequence[Memory], session: str, who: str = "") -> None:
        """Take it back: what was decided did not reach the agent."""
        for memory in memories:
            await self._shelf.drop(KIND, _said(memory, session, who))

    async def untold_here(self, memories: Sequence[Memory], session: str) -> None:
        """This session did not hear them as it began."""
        for memory in memories:
            await self._shelf.drop(KIND, _here(_key(memory), session))

    async def of_session(self, session: str) -> list[str]:
        """Ids of the memories that this session was told, the latest last."""
        keys = [item.key.rpartition(_BETWEEN)[2] for item in await self._told_to(session)]
        return list(dict.fromkeys(key.rpartition(":")[0] for key in keys))

    async def forget(self, session: str) -> None:
        """What this session was told may be told again."""
        for item in await self._told_to(session):
            await self._shelf.drop(KIND, item.key)

    async def _told_to(self, session: str) -> list[Item]:
        named, here = session.encode(errors="replace"), _here("", session)
        items = await self._shelf.scan(KIND)
        return [item for item in items if item.value == named or item.key.startswith(here)]

    async def renew(self, memory_id: str) -> None:
        """It is known already: begin its time of life anew."""
        if self._ttl_seconds > 0:
            for item in await self._shelf.scan(KIND, f"{memory_id}:"):
                await self._shelf.touch(KIND, item.key, ttl_seconds=self._ttl_seconds)


def _key(memory: Memory, who: str = "") -> str:
    key = f"{memory.id}:{memory.content_hash}"
    return f"{key}@{who}" if who else key


def _said(memory: Memory, session: str, who: str) -> str:
    """Under what it is written that a memory was said."""
    return _here(_key(memory), session) if is_subagents(session) else _key(memory, who)


def _here(key: str, session: str) -> str:
    return f"{session}{_BETWEEN}{key}"
