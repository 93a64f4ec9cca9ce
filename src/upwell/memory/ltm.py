"""Recall over another memory server that speaks MCP (seed 000).

What it is asked and how it is read is in `memory/dialects.py`. Its scores are on a scale of its
own, so its hits are judged from their text by `memory/rescore.py`, and its score is one more
signal. It may hang, crash or talk rubbish: a search waits for it a part of its time, and after
some failures in a row not at all for a while. What it answers too late for an automatic door is
kept for the next search about the same; as long as it is that slow, those doors do not wait for it.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from upwell.ground.errors import RecallUnavailable
from upwell.ground.limits import SYSTEM_CLOCK, Breaker, Clock, Deadline
from upwell.ground.names import LTM_ID
from upwell.ground.redact import has_secret, redact
from upwell.ground.text.anchors import paths_in, symbols_in
from upwell.ground.types import Hit, Memory, Ping, Query, Trust
from upwell.memory.dialects import Dialect, Found, Unreadable, body_of, dialect_of
from upwell.memory.options import LtmOptions, LtmProfile
from upwell.memory.overdue import Answers, Overdue
from upwell.memory.rescore import rescored
from upwell.memory.rows import content_hash

SIGNAL = "ltm"
"""The server's own score, as it gave it."""
MAX_CHARS = 4_000
MOST_MEMORIES = 40
MOST_KEPT = 500
"""So many of the latest hits can be read by their ids: most servers have no tool for that."""
PATIENCE = 0.7
"""The share of its deadline that somebody who asked waits for the server."""
RACE_SHARE = 2 / 3
"""The share of the race that an automatic door waits: what else was found is still in time."""
PING_SECONDS = 10.0
_MASK = re.compile(r"\[REDACTED:[^\]]*\]")
_HINT = "check ltm.command or ltm.url; `upwell doctor` tries it"


class Calls(Protocol):
    """A memory server that is kept running. Its failures are `RecallUnavailable`."""

    def ready(self) -> bool:
        """Have it started if it is not, and say whether it answers already."""
        ...

    async def tools(self, deadline: Deadline) -> Mapping[str, frozenset[str]]:
        """Its tools, each with the names of the arguments that it declares; waits for its start."""
        ...

    async def call(
        self, tool: str, arguments: Mapping[str, Any], deadline: Deadline
    ) -> Mapping[str, Any]:
        """The decoded `result` of a tool call."""
        ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """`race_seconds` is the race of automatic doors; the others are those of the breaker."""

    race_seconds: float = 0.3
    max_failures: int = 3
    reset_seconds: float = 60.0


class LtmRecall:
    """`Recall` over the server behind `calls`. Those who wait for an answer and automatic doors
    have a breaker each: what is too slow for a race may be quick enough for a search."""

    name = "ltm"

    def __init__(
        self,
        calls: Calls,
        options: LtmOptions,
        patience: Patience | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._calls = calls
        self._options = options
        self._patience = patience or Patience()
        self._clock = clock
        self._breakers = {
            awaited: Breaker(self._patience.max_failures, self._patience.reset_seconds, clock)
            for awaited in (True, False)
        }
        self._last: dict[bool, str] = {}
        self._quick_seconds = self._patience.race_seconds * RACE_SHARE
        self._overdue = Overdue(self._quick_seconds, self._came_late, clock)
        self._kept: OrderedDict[str, Memory] = OrderedDict()

    async def search(self, query: Query, deadline: Deadline) -> list[Hit]:
        """What the server holds that bears on `query`, most probable first by our own signals.

        Raises:
            RecallUnavailable: it is not up yet, failed, took too long, answered rubbish, or did so
                a few times in a row and is left alone.
        """
        if not query.awaited and (late := self._overdue.about(query)) is not None:
            return await self._read(late, query, deadline)
        self._admit(query)
        seconds = self._waits(query, deadline)
        asking = asyncio.create_task(self._answers(query, deadline))
        try:
            await asyncio.wait({asking}, timeout=seconds)
        except asyncio.CancelledError:
            asking.cancel()
            raise
        if not asking.done():
            raise self._gone_on(asking, query, seconds)
        try:
            hits = await self._read(asking.result(), query, deadline)
        except RecallUnavailable as error:
            self._failed(error, query)
            raise
        self._breakers[query.awaited].succeed()
        return hits

    def _admit(self, query: Query) -> None:
        """May it be asked now?

        Raises:
            RecallUnavailable: no; the message says why.
        """
        if not query.awaited and not self._calls.ready():
            raise unavailable("is not up yet")
        if not query.awaited and self._overdue.is_busy:
            raise unavailable("is slow, and still about what it was asked before")
        if not self._breakers[query.awaited].allow():
            raise unavailable(f"is left alone for a while; at last, {self._last[query.awaited]}")

    def _waits(self, query: Query, deadline: Deadline) -> float:
        """Seconds that this search waits for its answer."""
        patient = deadline.remaining() * PATIENCE
        if query.awaited:
            return patient
        return 0.0 if self._overdue.is_slow else min(patient, self._quick_seconds)

    def _gone_on(
        self, asking: "asyncio.Task[Answers]", query: Query, seconds: float
    ) -> RecallUnavailable:
        """The search goes on without its answer; an automatic door's may still come."""
        if query.awaited:
            asking.cancel()
        elif self._overdue.expect(asking, query):
            return unavailable("is slow; what it answers comes with the next search")
        error = unavailable(f"did not answer within {seconds * 1000:.0f} ms")
        self._failed(error, query)
        return error

    def _came_late(self, fault: str) -> None:
        """What an automatic door asked was answered after all ("") or failed."""
        if fault:
            self._last[False] = fault
            self._breakers[False].fail()
        else:
            self._breakers[False].succeed()

    async def get(self, memory_id: str) -> Memory | None:
        """A memory that was found lately."""
        return self._kept.get(memory_id)

    async def ping(self) -> Ping:
        """Does it start, and is there a tool of its that searches?"""
        try:
            async with asyncio.timeout(PING_SECONDS):
                tools = await self._calls.tools(Deadline.after(PING_SECONDS, self._clock))
            dialect, tool = self._spoken(tools)
        except TimeoutError:
            return Ping(ok=False, detail=f"does not answer in {PING_SECONDS:g} s", hint=_HINT)
        except RecallUnavailable as error:
            return Ping(ok=False, detail=error.message, hint=error.hint)
        return Ping(ok=True, detail=f"{dialect.name}, searched with {tool}, {len(tools)} tools")

    def warm(self) -> None:
        """Have it started, so that nobody waits for that."""
        self._calls.ready()

    async def aclose(self) -> None:
        await self._overdue.aclose()
        await self._calls.aclose()

    def _failed(self, error: RecallUnavailable, query: Query) -> None:
        self._last[query.awaited] = error.message
        self._breakers[query.awaited].fail()

    async def _answers(self, query: Query, deadline: Deadline) -> Answers:
        """What it says to the query, however long that takes within the deadline.

        Raises:
            RecallUnavailable: it failed, or took longer.
        """
        try:
            async with asyncio.timeout(deadline.remaining()):
                tools = await self._calls.tools(deadline)
                dialect, tool = self._spoken(tools)
                results = await asyncio.gather(
                    *(
                        self._calls.call(tool, dialect.filled(text, tools[tool]), deadline)
                        for text in dialect.asked(_without_secrets(query))
                    )
                )
        except TimeoutError:
            raise unavailable("did not answer") from None
        return Answers(dialect, tuple(results))

    async def _read(self, answers: Answers, query: Query, deadline: Deadline) -> list[Hit]:
        """The hits in these answers.

        Raises:
            RecallUnavailable: there are none to be read.
        """
        try:
            hits = await asyncio.to_thread(self._judged, answers, query, deadline)
        except Unreadable as error:
            raise unavailable(f"gave no hits: {error}") from error
        for hit in hits:
            self._kept[hit.memory.id] = hit.memory
            self._kept.move_to_end(hit.memory.id)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return hits

    def _judged(self, answers: Answers, query: Query, deadline: Deadline) -> list[Hit]:
        """The hits of all answers, each text once, with scores of ours."""
        memories: dict[str, Memory] = {}
        scores: dict[str, float] = {}
        for result in answers.results:
            for found in answers.dialect.read(body_of(result))[:MOST_MEMORIES]:
                memory = _memory(found)
                memories.setdefault(memory.id, memory)
                if found.score is not None:
                    scores[memory.id] = found.score
        told = list(memories.values())[:MOST_MEMORIES]
        return [
            replace(hit, signals={**hit.signals, SIGNAL: scores[hit.memory.id]})
            if hit.memory.id in scores
            else hit
            for hit in rescored(told, query, self._clock.now(), deadline)
        ]

    def _spoken(self, tools: Mapping[str, frozenset[str]]) -> tuple[Dialect, str]:
        """How to speak to a server with these tools, and which of them searches."""
        dialect = dialect_of(self._options, tuple(tools))
        if dialect is not None:
            return dialect, next(name for name in dialect.tools if name in tools)
        profile = self._options.profile
        which = self._options.tool if profile is LtmProfile.GENERIC else f"of profile {profile}"
        has = ", ".join(sorted(tools))[:200] or "none"
        raise RecallUnavailable(
            f"the memory server has no tool {which} that searches, but {has}",
            source="ltm",
            hint="ltm.profile = generic, and ltm.tool, ltm.arguments and ltm.result say how",
        )


def _without_secrets(query: Query) -> Query:
    """What may be told to somebody else."""
    return replace(
        query,
        texts=tuple(_MASK.sub(" ", redact(text)[0]) for text in query.texts),
        paths=tuple(path for path in query.paths if not has_secret(path)),
        symbols=tuple(symbol for symbol in query.symbols if not has_secret(symbol)),
    )


def _memory(found: Found) -> Memory:
    """A hit as a memory: its secrets masked, seen from everywhere, an id of its text."""
    text = redact(found.text[:MAX_CHARS].strip())[0]
    return Memory(
        id=LTM_ID + content_hash(text)[:16],
        text=text,
        tags=found.tags,
        paths=paths_in(text),
        symbols=symbols_in(text),
        source=LTM_ID + " ".join(redact(found.source[:200])[0].split()),
        trust=Trust.IMPORTED,
    )


def unavailable(why: str) -> RecallUnavailable:
    """Why there is nothing from the memory server, and what to do."""
    return RecallUnavailable(f"the memory server {why}", source="ltm", hint=_HINT)
