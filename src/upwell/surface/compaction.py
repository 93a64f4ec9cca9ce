"""When an agent's context is compacted: what it was told is forgotten with the rest.

Before that happens, what the session was told is written down, and may be told again: by the cue
that needs it, or as the session goes on (`opening.py`). Hosts say it before (PreCompact), after (a
session that begins because of it), or both; the second finds what the first left.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import orjson

from upwell.ground.shelf import Shelf
from upwell.ground.types import Memory
from upwell.learn.thresholds import Use
from upwell.learn.uses import Uses
from upwell.surface.rules import Rules
from upwell.surface.seen import Seen

KIND = "compacted"
KEPT_SECONDS = 86_400.0
MAX_TOLD = 12
"""Of what a session was told, the latest so many are considered as it goes on."""

Known = Callable[[str], Awaitable[Memory | None]]
"""The memory with this id, None when it is gone."""


async def nothing_known(_: str) -> Memory | None:
    """Nothing is remembered."""
    return None


@dataclass(frozen=True, slots=True)
class Compaction:
    """Follows what sessions were told through their compactions. `is_demoted` says of a memory that
    it was rated down again and again."""

    shelf: Shelf
    seen: Seen
    rules: Rules
    known: Known
    is_demoted: Callable[[str], bool]

    async def before(self, session: str) -> None:
        """The agent is about to forget: write down what it was told, and let it be told again."""
        told = await self.seen.of_session(session) if session else []
        if told:
            latest = orjson.dumps(told[-MAX_TOLD:])
            await self.shelf.put(KIND, {session: latest}, ttl_seconds=KEPT_SECONDS)
            await self.seen.forget(session)
        if session:
            await self.rules.untold(session)

    async def is_due(self, session: str) -> bool:
        """Was the agent about to forget, and the session has not gone on since?"""
        return bool(session) and session in await self.shelf.get(KIND, [session])

    async def after(self, session: str) -> Sequence[Memory]:
        """What the session had been told and may need as it goes on: what it used, then the latest;
        nothing that it ignored."""
        await self.before(session)
        item = (await self.shelf.get(KIND, [session])).get(session)
        if item is None:
            return ()
        await self.shelf.touch(KIND, session, ttl_seconds=0)
        uses = Uses(self.shelf)
        verdicts = {one: await uses.last(one) for one in reversed(orjson.loads(item.value))}
        used = [one for one, use in verdicts.items() if use is Use.USED]
        undecided = [one for one, use in verdicts.items() if use is None]
        found = [await self.known(one) for one in (*used, *undecided) if not self.is_demoted(one)]
        return [memory for memory in found if memory is not None]
