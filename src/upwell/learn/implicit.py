"""Noticing what an agent makes use of, without asking: a surfaced memory whose distinctive words
appear in the next calls of the session was used.

Distinctive are words that are rare in the store and were not in the cue that surfaced the memory.
Everything here happens behind the calls; what is watched stands on the shelf, so that a session
whose every event is a process of its own is followed, too. Nothing of a cue is kept.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson

from upwell.ground.errors import StoreError
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.shelf import Shelf
from upwell.ground.text.words import informative, terms
from upwell.ground.trace import LOG
from upwell.ground.types import AUTOMATIC_DOORS, Cue, Hit, Surfacing
from upwell.learn.thresholds import Sample, Use
from upwell.learn.uses import Seen, Uses

KIND = "watched"
KEPT_SECONDS = 6 * 3600.0
LOOKS = 10
"""Calls of the session after which a memory that left no trace was ignored."""
LEAST_LOOKS = 3
"""Calls after which that can be said when the session ends before."""
MOST_WORDS = 24
MIN_CHARS = 4
ENOUGH = 2
"""Distinctive words that must appear; one with a digit in it (a port, a version) is enough."""
MAX_READ_CHARS = 20_000
_MAX_DEPTH = 6
_BETWEEN = "\t"

Rare = Callable[[Sequence[str]], Awaitable[set[str]]]
"""Which of these words few memories hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A memory that was surfaced `at` a time, and the words by which its use would show."""

    surfacing: str
    memory: str
    door: str
    tool: str
    score: float
    words: Sequence[str]
    looks: int = LOOKS
    at: float = 0.0

    @property
    def said(self) -> tuple[str, str]:
        """Which memory of which surfacing it is."""
        return self.surfacing, self.memory

    def shows_in(self, said: frozenset[str]) -> bool:
        """Do enough of its words appear?"""
        found = said.intersection(self.words)
        return len(found) >= ENOUGH or any(any(map(str.isdigit, word)) for word in found)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a watched memory."""

    watched: Watched
    use: Use


Tell = Callable[[Sequence[Verdict]], Awaitable[None]]


Written = Callable[[float], Sequence[tuple[float, str]]]
"""What the agent wrote since a time, with the times; may take a while."""


@dataclass(frozen=True, slots=True)
class _Event:
    """Something that happened in a session: a cue, what was said to it, a memory read on, what the
    agent wrote, or the session's end."""

    cue: Cue | None = None
    surfacing: Surfacing | None = None
    opened: str = ""
    written: Written | None = None
    ended: bool = False


class Watching:
    """Follows sessions. `tell` hears what was used or ignored, after it was kept."""

    def __init__(
        self, shelf: Shelf, uses: Uses, rare: Rare, tell: Tell, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._shelf = shelf
        self._uses = uses
        self._rare = rare
        self._tell = tell
        self._clock = clock
        self._flushing = asyncio.Lock()
        self._events: dict[str, list[_Event]] = {}
        self._unsaid: set[tuple[str, str]] = set()

    def noticed(self, cue: Cue, outcome: object) -> None:
        """A cue came, and this was the outcome."""
        if not cue.session:
            return
        said = outcome if isinstance(outcome, Surfacing) and cue.door in AUTOMATIC_DOORS else None
        self._events.setdefault(cue.session, []).append(_Event(cue=cue, surfacing=said))

    def opened(self, session: str, memory: str) -> None:
        """The agent asked for the whole of a memory."""
        if session:
            self._events.setdefault(session, []).append(_Event(opened=memory))

    def wrote(self, session: str, written: Written) -> None:
        """The agent came to the end of a turn, in which it wrote this."""
        if session:
            self._events.setdefault(session, []).append(_Event(written=written))

    def ended(self, session: str) -> None:
        """The session is over: what it has been shown and left alone for a while was ignored."""
        if session:
            self._events.setdefault(session, []).append(_Event(ended=True))

    def unsaid(self, surfacing: Surfacing) -> None:
        """Its memories did not reach the agent."""
        self._unsaid.update((surfacing.id, memory.id) for memory in surfacing.memories)

    async def flush(self) -> None:
        """Look through what happened since the last time. A shelf that fails costs that."""
        async with self._flushing:
            await self._look()

    async def _look(self) -> None:
        events, self._events = self._events, {}
        unsaid, self._unsaid = self._unsaid, set[tuple[str, str]]()
        try:
            for session, happened in events.items():
                await self._follow(session, happened, unsaid)
        except StoreError as error:
            LOG.warning("what agents use is not followed: %s", error)

    async def _follow(
        self, session: str, events: Sequence[_Event], unsaid: set[tuple[str, str]]
    ) -> None:
        """One session: what was watched is looked for in what came next, then more is watched."""
        before = await self._watched(session)
        watched = {name: one for name, one in before.items() if one.said not in unsaid}
        verdicts: list[Verdict] = []
        for event in events:
            said = await _said_by(event, watched)
            wrote = await _written_by(event, watched)
            for name, one in list(watched.items()):
                seen = replace(one, looks=one.looks - 1) if event.cue else one
                use = _use_of(seen, said | wrote.get(one.at, frozenset()), event.opened)
                if use is None and not event.ended:
                    watched[name] = seen
                    continue
                del watched[name]
                if use is not None or seen.looks <= LOOKS - LEAST_LOOKS:
                    verdicts.append(Verdict(seen, use or Use.IGNORED))
            if event.cue and event.surfacing:
                for one in await self._to_watch(event.cue, event.surfacing, said):
                    if one.said in unsaid:
                        continue
                    watched[_BETWEEN.join((session, one.surfacing, one.memory))] = one
        for name in before.keys() - watched.keys():
            await self._shelf.drop(KIND, name)
        changed = {name: one for name, one in watched.items() if before.get(name) != one}
        if changed:
            written = {name: orjson.dumps(asdict(one)) for name, one in changed.items()}
            await self._shelf.put(KIND, written, ttl_seconds=KEPT_SECONDS)
        await self._conclude(verdicts)

    async def _watched(self, session: str) -> dict[str, Watched]:
        items = await self._shelf.scan(KIND, session + _BETWEEN)
        return {item.key: Watched(**orjson.loads(item.value)) for item in items}

    async def _to_watch(
        self, cue: Cue, surfacing: Surfacing, said: frozenset[str]
    ) -> list[Watched]:
        found: list[Watched] = []
        for hit in surfacing.hits:
            words = await self._distinctive(hit, said)
            if words:
                found.append(
                    Watched(
                        surfacing=surfacing.id,
                        memory=hit.memory.id,
                        door=str(cue.door),
                        tool=cue.tool or str(cue.door),
                        score=round(hit.score, 4),
                        words=words,
                        at=cue.at or 0.0,
                    )
                )
        return found

    async def _distinctive(self, hit: Hit, said: frozenset[str]) -> list[str]:
        if hit.memory.pinned:
            return []
        words = [
            word
            for word in informative(terms(hit.memory.text[:MAX_READ_CHARS]))
            if len(word) >= MIN_CHARS and word not in said
        ]
        rare = await self._rare(words) if words else set[str]()
        return [word for word in words if word in rare][:MOST_WORDS]

    async def _conclude(self, verdicts: Sequence[Verdict]) -> None:
        if not verdicts:
            return
        at = self._clock.now()
        await self._uses.add([_seen(verdict, at) for verdict in verdicts])
        await self._tell(verdicts)


async def _said_by(event: _Event, watched: Mapping[str, Watched]) -> frozenset[str]:
    """The words of its cue; none where nobody looks for them."""
    if event.cue is None or not (watched or event.surfacing):
        return frozenset()
    return await asyncio.to_thread(spoken, event.cue)


async def _written_by(
    event: _Event, watched: Mapping[str, Watched]
) -> Mapping[float, frozenset[str]]:
    if event.written is None or not watched:
        return {}
    return await asyncio.to_thread(_written_since, event.written, watched.values())


def _written_since(
    written: Written | None, watched: Iterable[Watched]
) -> Mapping[float, frozenset[str]]:
    """The words that the agent wrote since each of the times at which something was surfaced."""
    times = {one.at for one in watched}
    if written is None or not times:
        return {}
    texts = written(min(times))
    return {
        since: frozenset(terms("\n".join(text for at, text in texts if at >= since)))
        for since in times
    }


def spoken(cue: Cue) -> frozenset[str]:
    """The words of a cue: its text, its tool's name, every string among its arguments."""
    parts = [cue.text[:MAX_READ_CHARS], cue.tool or "", *_strings(cue.args, _MAX_DEPTH)]
    return frozenset(terms("\n".join(parts)[:MAX_READ_CHARS]))


def _strings(value: Any, depth: int) -> Iterable[str]:
    if isinstance(value, str):
        yield value[:MAX_READ_CHARS]
    elif isinstance(value, bool | None):
        return
    elif isinstance(value, int | float):
        yield str(value)
    elif depth and isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(inner, depth - 1)


def _use_of(watched: Watched, said: frozenset[str], opened: str) -> Use | None:
    """What became of it by now; None while that is open."""
    if opened == watched.memory or (said and watched.shows_in(said)):
        return Use.USED
    return Use.IGNORED if watched.looks <= 0 else None


def _seen(verdict: Verdict, at: float) -> Seen:
    watched = verdict.watched
    return Seen(
        tool=watched.tool,
        sample=Sample(
            surfacing=watched.surfacing,
            memory=watched.memory,
            verdict=verdict.use,
            score=watched.score,
            at=at,
        ),
    )
