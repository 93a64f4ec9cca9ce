"""Implicit feedback: a memory counts as used if the agent fetches its full text, or if its
distinctive words appear in the session's next calls and prompts or in what the agent writes.

A word is distinctive if it is rare in the store and did not occur in the cue (the prompt or call)
that made the memory surface. During a call, events are only queued. They are examined afterwards.
The watched memories are in the TTL store, so that a session can be followed even if each of its
events is handled by a different process. No text from a cue is stored.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import asdict, replace

from upwell.ground.clock import Clock
from upwell.ground.errors import StoreError
from upwell.ground.ledger import EntryKind, TtlStore
from upwell.ground.text.words import informative, terms
from upwell.ground.trace import LOG
from upwell.ground.types.cue import AUTOMATIC_DOORS, Cue, Surfacing
from upwell.ground.types.memory import Hit
from upwell.learn.feedback import WINDOW_SECONDS, MemoryUse, ScoreSample

_SEPARATOR = "\t"


class Sighting(Struct, frozen=True, kw_only=True):
    """The observed use of a memory. `tool` is the case in which the memory surfaced
    (`Watched.case`). Without a case, it is the tool of the call, or the door if there was no tool.
    """

    tool: str
    sample: ScoreSample


class Uses:
    """The stored observations. Every method raises StoreError if the store fails."""

    def __init__(self, ttl_store: TtlStore) -> None:
        self._ttl_store = ttl_store

    async def add(self, sightings: Sequence[Sighting]) -> None:
        """Store observations. A later observation about the same memory and surfacing replaces an
        earlier one."""
        entries: dict[str, bytes] = {}
        for sighting in sightings:
            sample = sighting.sample
            entries[_SEPARATOR.join((sample.memory, sample.surfacing))] = orjson.dumps(
                [sighting.tool, str(sample.evidence), sample.score, sample.at]
            )
        await self._ttl_store.put(EntryKind.USE, entries, ttl_seconds=WINDOW_SECONDS)

    async def all(self, memory: str = "") -> list[Sighting]:
        """All observations, or those about one memory; oldest first."""
        sightings: list[Sighting] = []
        for item in await self._ttl_store.scan(
            EntryKind.USE, f"{memory}{_SEPARATOR}" if memory else ""
        ):
            name, _, surfacing = item.key.rpartition(_SEPARATOR)
            tool, use, score, at = orjson.loads(item.value)
            sample = ScoreSample(
                surfacing=surfacing, memory=name, evidence=MemoryUse(use), score=score, at=at
            )
            sightings.append(Sighting(tool=tool, sample=sample))
        return sightings

    async def last(self, memory: str) -> MemoryUse | None:
        """The latest observation about a memory, if any."""
        samples = [sighting.sample for sighting in await self.all(memory)]
        latest = max(samples, key=lambda sample: sample.at).evidence if samples else None
        return latest if isinstance(latest, MemoryUse) else None

    async def forget(self, memory: str | None = None) -> int:
        """Remove the observations about one memory, or all of them. Returns how many were
        removed."""
        return await self._ttl_store.drop(EntryKind.USE, f"{memory}{_SEPARATOR}" if memory else "")


WATCH_SECONDS = 6 * 3600.0
LOOKS = 10
"""A memory counts as ignored after this many calls and prompts without evidence of its use."""
MIN_LOOKS = 3
"""An unused memory also counts as ignored if the session ends after at least this many calls and
prompts."""
MAX_WORDS = 24
MIN_CHARS = 4
ENOUGH = 2
"""A memory counts as used if at least this many of its distinctive words appear, or one that
contains a digit (a port, a version)."""
MAX_READ_CHARS = 20_000
MAX_INLINE_CHARS = 2_000
"""A text of at most this length is not handed to a thread: splitting it into words takes less
time."""
_MAX_DEPTH = 6

Rare = Callable[[Sequence[str]], Awaitable[set[str]]]
"""Takes words, and returns those that only a few memories contain."""


class Watched(Struct, frozen=True, kw_only=True):
    """A memory that surfaced at the time `at`, and the `words` that would show its use. If it is
    still unused after `looks` more calls and prompts, it counts as ignored. `case` combines the
    moment (such as a failed call) and the kind of the memory. It is "" if `surface.moments` is
    `all`."""

    surfacing: str
    memory: str
    door: str
    tool: str
    score: float
    words: Sequence[str]
    looks: int = LOOKS
    at: float = 0.0
    case: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The surfacing and the memory."""
        return self.surfacing, self.memory

    def shows_in(self, spoken_words: frozenset[str]) -> bool:
        """True if enough of the memory's words appear."""
        shared = spoken_words.intersection(self.words)
        return len(shared) >= ENOUGH or any(any(map(str.isdigit, word)) for word in shared)


class Observation(Struct, frozen=True):
    """The conclusion about a watched memory: it was used or ignored."""

    watched: Watched
    use: MemoryUse


CaseOf = Callable[[Surfacing, Hit], str]
"""Returns the case of a memory in a surfacing (`Watched.case`), or "" for none."""


Conclude = Callable[[Sequence[Observation]], Awaitable[None]]
"""Receives observations after they have been stored."""

Written = Callable[[float], Sequence[tuple[float, str]]]
"""Returns the texts that the agent has written since a given time, each with its own time. May
block."""


class _Event(Struct, frozen=True):
    cue: Cue | None = None
    surfacing: Surfacing | None = None
    opened: str = ""
    written: Written | None = None
    ended: bool = False


class Watching:
    """Follows sessions, and decides which surfaced memories their agents used or ignored."""

    def __init__(
        self,
        ttl_store: TtlStore,
        uses: Uses,
        rare: Rare,
        conclude: Conclude,
        clock: Clock,
        case_of: CaseOf,
    ) -> None:
        self._case_of = case_of
        self._ttl_store = ttl_store
        self._uses = uses
        self._rare = rare
        self._report = conclude
        self._clock = clock
        self._flushing = asyncio.Lock()
        self._events: dict[str, list[_Event]] = {}
        self._undelivered: set[tuple[str, str]] = set()

    def noticed(self, cue: Cue, outcome: object) -> None:
        """Note a cue and its outcome."""
        if not cue.session:
            return
        is_unasked = isinstance(outcome, Surfacing) and cue.door in AUTOMATIC_DOORS
        surfacing = outcome if isinstance(outcome, Surfacing) and is_unasked else None
        self._events.setdefault(cue.session, []).append(_Event(cue=cue, surfacing=surfacing))

    def opened(self, session: str, memory: str) -> None:
        """Note that the agent fetched the full text of a memory."""
        if session:
            self._events.setdefault(session, []).append(_Event(opened=memory))

    def wrote(self, session: str, written: Written) -> None:
        """Note the end of a turn, and the text that the agent wrote in it."""
        if session:
            self._events.setdefault(session, []).append(_Event(written=written))

    def ended(self, session: str) -> None:
        """Note the end of a session. A memory that is still unused after at least `MIN_LOOKS` calls
        and prompts counts as ignored."""
        if session:
            self._events.setdefault(session, []).append(_Event(ended=True))

    def undo(self, surfacing: Surfacing) -> None:
        """Stop watching the memories of a surfacing that did not reach the agent."""
        self._undelivered.update((surfacing.id, memory.id) for memory in surfacing.memories)

    async def flush(self) -> None:
        """Process the events since the last flush. If the store fails, these events are lost."""
        async with self._flushing:
            events, self._events = self._events, {}
            undelivered, self._undelivered = self._undelivered, set[tuple[str, str]]()
            try:
                for session, session_events in events.items():
                    await self._follow(session, session_events, undelivered)
            except StoreError as error:
                LOG.warning("the use of memories was not recorded: %s", error)

    async def _follow(
        self, session: str, events: Sequence[_Event], undelivered: set[tuple[str, str]]
    ) -> None:
        items = await self._ttl_store.scan(EntryKind.WATCHED, session + _SEPARATOR)
        before = {item.key: Watched(**orjson.loads(item.value)) for item in items}
        watched = {name: entry for name, entry in before.items() if entry.key not in undelivered}
        observations: list[Observation] = []
        for event in events:
            spoken_words = await _spoken_words(event, watched)
            written_words = await _written_words(event, watched)
            for name, entry in list(watched.items()):
                words = spoken_words | written_words.get(entry.at, frozenset())
                entry = replace(entry, looks=entry.looks - 1) if event.cue else entry
                use = _use_of(entry, words, event.opened)
                if use is None and not event.ended:
                    watched[name] = entry
                    continue
                del watched[name]
                if use is not None or entry.looks <= LOOKS - MIN_LOOKS:
                    observations.append(Observation(entry, use or MemoryUse.IGNORED))
            if event.cue and event.surfacing:
                for entry in await self._to_watch(event.cue, event.surfacing, spoken_words):
                    if entry.key not in undelivered:
                        name = _SEPARATOR.join((session, entry.surfacing, entry.memory))
                        watched[name] = entry
        await self._ttl_store.delete(EntryKind.WATCHED, list(before.keys() - watched.keys()))
        changed = {name: entry for name, entry in watched.items() if before.get(name) != entry}
        if changed:
            values = {name: orjson.dumps(asdict(entry)) for name, entry in changed.items()}
            await self._ttl_store.put(EntryKind.WATCHED, values, ttl_seconds=WATCH_SECONDS)
        if observations:
            at = self._clock.now()
            await self._uses.add([_sighting(each, at) for each in observations])
            await self._report(observations)

    async def _to_watch(
        self, cue: Cue, surfacing: Surfacing, spoken_words: frozenset[str]
    ) -> list[Watched]:
        entries: list[Watched] = []
        for hit in surfacing.hits:
            words = await self._distinctive(hit, spoken_words)
            if words:
                entries.append(
                    Watched(
                        surfacing=surfacing.id,
                        memory=hit.memory.id,
                        door=str(cue.door),
                        tool=cue.tool or str(cue.door),
                        score=round(hit.score, 4),
                        words=words,
                        at=cue.at or 0.0,
                        case=self._case_of(surfacing, hit),
                    )
                )
        return entries

    async def _distinctive(self, hit: Hit, spoken_words: frozenset[str]) -> list[str]:
        if hit.memory.pinned:
            return []
        words = [
            word
            for word in informative(terms(hit.memory.text[:MAX_READ_CHARS]))
            if len(word) >= MIN_CHARS and word not in spoken_words
        ]
        rare = await self._rare(words) if words else set[str]()
        return [word for word in words if word in rare][:MAX_WORDS]


async def _spoken_words(event: _Event, watched: Mapping[str, Watched]) -> frozenset[str]:
    if event.cue is None or not (watched or event.surfacing):
        return frozenset()
    text = spoken_text(event.cue)
    if len(text) <= MAX_INLINE_CHARS:
        return frozenset(terms(text))
    return frozenset(await asyncio.to_thread(terms, text))


async def _written_words(
    event: _Event, watched: Mapping[str, Watched]
) -> Mapping[float, frozenset[str]]:
    """For each time at which a watched memory surfaced, the words that the agent has written
    since."""
    written, times = event.written, {entry.at for entry in watched.values()}
    if written is None or not times:
        return {}

    def read() -> Mapping[float, frozenset[str]]:
        texts = written(min(times))
        return {
            since: frozenset(terms("\n".join(text for time, text in texts if time >= since)))
            for since in times
        }

    return await asyncio.to_thread(read)


def spoken_text(cue: Cue) -> str:
    """The text of a cue, its tool's name, and the strings and numbers in its arguments. Very long
    text and deeply nested arguments are left out."""
    parts, chars = list[str](), 0
    for part in chain((cue.text[:MAX_READ_CHARS], cue.tool or ""), _strings(cue.args, _MAX_DEPTH)):
        parts.append(part)
        chars += len(part) + 1
        if chars > MAX_READ_CHARS:
            break
    return "\n".join(parts)[:MAX_READ_CHARS]


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


def _use_of(watched: Watched, words: frozenset[str], opened_id: str) -> MemoryUse | None:
    if opened_id == watched.memory or (words and watched.shows_in(words)):
        return MemoryUse.USED
    return MemoryUse.IGNORED if watched.looks <= 0 else None


def _sighting(observation: Observation, at: float) -> Sighting:
    watched = observation.watched
    return Sighting(
        tool=watched.case or watched.tool,
        sample=ScoreSample(
            surfacing=watched.surfacing,
            memory=watched.memory,
            evidence=observation.use,
            score=watched.score,
            at=at,
        ),
    )
