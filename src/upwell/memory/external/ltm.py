"""Recall over another memory server that speaks MCP (seed 000).

`memory/external/dialects.py` builds the requests and parses the answers. Servers score hits on
scales of their own, so `memory/sqlite/rescore.py` scores them again from their text. In an explicit
search, the server's own score counts if it is higher; it is also one of the signals.

The server may hang, crash or send garbage. A search waits for part of its deadline, and a breaker
skips the server for a while after several failures in a row. An answer that arrives too late for an
automatic door is used by the next search about the same subject. While the server is that slow,
automatic doors do not wait for it.
"""

import asyncio
import math
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.errors import RecallUnavailable
from upwell.ground.limits import Breaker
from upwell.ground.secrets.redact import has_secret, redact, redacted_start
from upwell.ground.text.anchors import paths_in, symbols_in
from upwell.ground.types.memory import Found, Hit, Memory, Query, Trust
from upwell.ground.types.rpc import Ping
from upwell.ground.uris import LTM_ID
from upwell.memory.external.dialects import Dialect, ServerHit, Unreadable, body_of, dialect_of
from upwell.memory.options import LtmOptions, LtmProfile
from upwell.memory.records import content_hash
from upwell.memory.sqlite.rescore import rescored

LATE_ANSWER_SECONDS = 60.0
"""How long a late answer can still be used."""
MAX_LATE_ANSWERS = 5


@dataclass(frozen=True, slots=True)
class Answers:
    """A server's answers to one query, not parsed yet."""

    dialect: Dialect
    results: tuple[Mapping[str, Any], ...]


class LateAnswers:
    """Pending requests to a server, and its latest late answers, each used once.

    `is_slow` is set when the last answer took longer than `quick_seconds`: no search should wait
    for the next one. `on_outcome` is called for each request that no search waits for, with "" for
    an answer and the reason for a failure.
    """

    def __init__(
        self, quick_seconds: float, on_outcome: Callable[[str], None], clock: Clock
    ) -> None:
        self.is_slow = False
        self._quick_seconds = quick_seconds
        self._on_outcome = on_outcome
        self._clock = clock
        self._pending: set[asyncio.Task[Answers]] = set()
        self._answers: list[tuple[float, Query, Answers]] = []

    @property
    def is_busy(self) -> bool:
        """Whether the server is slow and still working on an earlier request."""
        return self.is_slow and bool(self._pending)

    def expect(self, request: "asyncio.Task[Answers]", query: Query) -> bool:
        """Take over a request that its search gave up on. True if the search did not wait."""
        began = self._clock.monotonic() if self.is_slow else None
        self._pending.add(request)
        request.add_done_callback(lambda done: self._arrived(done, query, began))
        return began is not None

    async def aclose(self) -> None:
        """Cancel the pending requests."""
        pending = list(self._pending)
        for request in pending:
            request.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    def _arrived(self, done: "asyncio.Task[Answers]", query: Query, began: float | None) -> None:
        """Settle a request. `began` is its start time if no search waited for it; a search that
        did wait has already counted a failure."""
        self._pending.discard(done)
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or error is not None:
            if began is not None:
                self._on_outcome(str(error or "the memory server did not answer"))
            return
        took = self._clock.monotonic() - began if began is not None else math.inf
        self.is_slow = took > self._quick_seconds
        self._on_outcome("")
        self._store(query, done.result())

    def _store(self, query: Query, answers: Answers) -> None:
        self._answers = [
            *self._answers[1 - MAX_LATE_ANSWERS :],
            (self._clock.monotonic(), query, answers),
        ]

    def about(self, query: Query) -> Answers | None:
        """Take the latest late answer to a query about the same files, or with the same words if
        neither query names files. Each answer is returned once."""
        oldest = self._clock.monotonic() - LATE_ANSWER_SECONDS
        self._answers = [answer for answer in self._answers if answer[0] >= oldest]
        for index in reversed(range(len(self._answers))):
            if _are_alike(self._answers[index][1], query):
                return self._answers.pop(index)[2]
        return None


def _are_alike(earlier: Query, query: Query) -> bool:
    if earlier.scope != query.scope:
        return False
    if earlier.paths or query.paths:
        return bool(set(earlier.paths) & set(query.paths))
    return bool(query.texts) and query.texts == earlier.texts


SIGNAL = "ltm"
"""The name of the signal that holds the server's own score."""
MAX_CHARS = 4_000
MAX_MEMORIES = 40
MAX_CACHED = 500
"""How many of the latest hits can be read by id; most servers have no tool that reads by id."""
PATIENCE = 0.7
"""The share of its deadline that an explicit search waits for the server."""
RACE_SHARE = 2 / 3
"""The share of the race that an automatic door waits, which leaves time for other hits."""
PING_SECONDS = 10.0
_MASK = re.compile(r"\[REDACTED:[^\]]*\]")
_HINT = "check ltm.command or ltm.url; `upwell doctor` tries it"


class Calls(Protocol):
    """A running memory server. Its failures raise `RecallUnavailable`."""

    def ready(self) -> bool:
        """Whether the server is up; starts the server otherwise."""
        ...

    async def tools(self, deadline: Deadline) -> Mapping[str, frozenset[str]]:
        """Tool name → names of the declared arguments; waits until the server is up."""
        ...

    async def call(
        self, tool: str, arguments: Mapping[str, Any], deadline: Deadline
    ) -> Mapping[str, Any]:
        """The decoded `result` of a tool call."""
        ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """`race_seconds` is the time of automatic doors; the other fields configure the breaker."""

    race_seconds: float = 0.3
    max_failures: int = 3
    reset_seconds: float = 60.0


class LtmRecall:
    """`Recall` over the server behind `calls`.

    Explicit searches and automatic doors have separate breakers: a server that is too slow for a
    race may be quick enough for a search.
    """

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
        self._last_failure: dict[bool, str] = {}
        self._quick_seconds = self._patience.race_seconds * RACE_SHARE
        self._late_answers = LateAnswers(self._quick_seconds, self._count_late, clock)
        self._cached: OrderedDict[str, Memory] = OrderedDict()

    async def search(self, query: Query, deadline: Deadline) -> Found:
        """Find the server's memories that bear on `query`, most probable first by upwell's signals.

        Raises:
            RecallUnavailable: the server is not up yet, failed, took too long or sent garbage, or
            its breaker is open.
        """
        if not query.awaited and (late := self._late_answers.about(query)) is not None:
            return Found(tuple(await self._read(late, query, deadline)))
        self._admit(query)
        seconds = self._waits(query, deadline)
        request = asyncio.create_task(self._request(query, deadline))
        try:
            await asyncio.wait({request}, timeout=seconds)
        except asyncio.CancelledError:
            request.cancel()
            raise
        if not request.done():
            raise self._stop_waiting(request, query, seconds)
        try:
            hits = await self._read(request.result(), query, deadline)
        except RecallUnavailable as error:
            self._fail(error, query)
            raise
        self._breakers[query.awaited].succeed()
        return Found(tuple(hits))

    def _admit(self, query: Query) -> None:
        """Check that the server can take a request now.

        Raises:
            RecallUnavailable: the server cannot; the message gives the reason.
        """
        if not query.awaited and not self._calls.ready():
            raise unavailable("is not up yet")
        if not query.awaited and self._late_answers.is_busy:
            raise unavailable("is slow and still working on an earlier request")
        if not self._breakers[query.awaited].allow():
            raise unavailable(
                f"failed too often and is paused; last failure: {self._last_failure[query.awaited]}"
            )

    def _waits(self, query: Query, deadline: Deadline) -> float:
        """How long this search waits for the server, in seconds."""
        patient = deadline.remaining() * PATIENCE
        if query.awaited:
            return patient
        return 0.0 if self._late_answers.is_slow else min(patient, self._quick_seconds)

    def _stop_waiting(
        self, request: "asyncio.Task[Answers]", query: Query, seconds: float
    ) -> RecallUnavailable:
        """Stop waiting; the answer to an automatic door may still arrive."""
        if query.awaited:
            request.cancel()
        elif self._late_answers.expect(request, query):
            return unavailable("is slow; the next search can use its answer")
        error = unavailable(f"did not answer within {seconds * 1000:.0f} ms")
        self._fail(error, query)
        return error

    def _count_late(self, failure: str) -> None:
        """Record the outcome of an automatic door's request; `failure` is "" for an answer."""
        if failure:
            self._last_failure[False] = failure
            self._breakers[False].fail()
        else:
            self._breakers[False].succeed()

    async def get(self, memory_id: str) -> Memory | None:
        """The memory with this id, if it is among the latest hits."""
        return self._cached.get(memory_id)

    async def ping(self) -> Ping:
        """Check that the server starts and has a known search tool."""
        try:
            async with asyncio.timeout(PING_SECONDS):
                tools = await self._calls.tools(Deadline.after(PING_SECONDS, self._clock))
            dialect, tool = self._dialect(tools)
        except TimeoutError:
            return Ping(ok=False, detail=f"does not answer in {PING_SECONDS:g} s", hint=_HINT)
        except RecallUnavailable as error:
            return Ping(ok=False, detail=error.message, hint=error.hint)
        return Ping(ok=True, detail=f"{dialect.name}, searched with {tool}, {len(tools)} tools")

    def warm(self) -> None:
        """Start the server in advance, so that no search has to wait for its start."""
        self._calls.ready()

    async def aclose(self) -> None:
        await self._late_answers.aclose()
        await self._calls.aclose()

    def _fail(self, error: RecallUnavailable, query: Query) -> None:
        self._last_failure[query.awaited] = error.message
        self._breakers[query.awaited].fail()

    async def _request(self, query: Query, deadline: Deadline) -> Answers:
        """Get the server's answers to the query within the deadline.

        Raises:
            RecallUnavailable: the server failed, or missed the deadline.
        """
        try:
            async with asyncio.timeout(deadline.remaining()):
                tools = await self._calls.tools(deadline)
                dialect, tool = self._dialect(tools)
                results = await asyncio.gather(
                    *(
                        self._calls.call(tool, dialect.filled(text, tools[tool]), deadline)
                        for text in dialect.requests(_without_secrets(query))
                    )
                )
        except TimeoutError:
            raise unavailable("did not answer") from None
        return Answers(dialect, tuple(results))

    async def _read(self, answers: Answers, query: Query, deadline: Deadline) -> list[Hit]:
        """Parse these answers into hits.

        Raises:
            RecallUnavailable: an answer has an unknown format.
        """
        try:
            hits = await asyncio.to_thread(self._scored, answers, query, deadline)
        except Unreadable as error:
            raise unavailable(f"gave no hits: {error}") from error
        for hit in hits:
            self._cached[hit.memory.id] = hit.memory
            self._cached.move_to_end(hit.memory.id)
        while len(self._cached) > MAX_CACHED:
            self._cached.popitem(last=False)
        return hits

    def _scored(self, answers: Answers, query: Query, deadline: Deadline) -> list[Hit]:
        """The hits of all answers, each text once, with scores by upwell."""
        memories: dict[str, Memory] = {}
        scores: dict[str, float] = {}
        for result in answers.results:
            for server_hit in answers.dialect.read(body_of(result))[:MAX_MEMORIES]:
                memory = _memory(server_hit)
                memories.setdefault(memory.id, memory)
                if server_hit.score is not None:
                    scores[memory.id] = server_hit.score
        first_memories = list(memories.values())[:MAX_MEMORIES]
        return [
            replace(hit, signals={**hit.signals, SIGNAL: scores[hit.memory.id]})
            if hit.memory.id in scores
            else hit
            for hit in rescored(first_memories, query, self._clock.now(), deadline, scores)
        ]

    def _dialect(self, tools: Mapping[str, frozenset[str]]) -> tuple[Dialect, str]:
        """The dialect of a server with these tools, and the name of its search tool.

        Raises:
            RecallUnavailable: none of the tools is a known search tool.
        """
        dialect = dialect_of(self._options, tuple(tools))
        if dialect is not None:
            return dialect, next(name for name in dialect.tools if name in tools)
        profile = self._options.profile
        tool = self._options.tool if profile is LtmProfile.GENERIC else f"of profile {profile}"
        names = ", ".join(sorted(tools))[:200] or "none"
        raise RecallUnavailable(
            f"the memory server has no search tool {tool}; its tools: {names}",
            source="ltm",
            hint="set ltm.profile = generic, ltm.tool, ltm.arguments and ltm.result",
        )


def _without_secrets(query: Query) -> Query:
    """The query without its secrets, safe to send to another program."""
    return replace(
        query,
        texts=tuple(_MASK.sub(" ", redact(text)[0]) for text in query.texts),
        paths=tuple(path for path in query.paths if not has_secret(path)),
        symbols=tuple(symbol for symbol in query.symbols if not has_secret(symbol)),
    )


def _memory(hit: ServerHit) -> Memory:
    """A hit as a memory: secrets masked, visible in every project, its id derived from its text."""
    text = redacted_start(hit.text.strip(), MAX_CHARS)
    return Memory(
        id=LTM_ID + content_hash(text)[:16],
        text=text,
        tags=hit.tags,
        paths=paths_in(text),
        symbols=symbols_in(text),
        source=LTM_ID + " ".join(redacted_start(hit.source, 200).split()),
        trust=Trust.IMPORTED,
    )


def unavailable(failure: str) -> RecallUnavailable:
    """The error for a memory server that cannot be used, with a hint."""
    return RecallUnavailable(f"the memory server {failure}", source="ltm", hint=_HINT)
