"""Recall from another memory server that speaks MCP (seed 000, tests/NAMES.md).

`memory/external/dialects.py` builds the requests and parses the results. Each server scores its
hits on a scale of its own, so `memory/external/waiting.py` scores the hits again from their text.
The server's own score becomes one of the signals. In an explicit search, a hit gets the higher of
the two scores.

The server may hang, crash or send garbage. `memory/external/waiting.py` limits how much time this
can cost.
"""

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.background import BackgroundTasks
from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.errors import RecallUnavailable, StoreError
from upwell.ground.ledger import EntryKind, TtlStore
from upwell.ground.names import LTM_ID
from upwell.ground.secrets.redact import has_secret, redact, redacted_start
from upwell.ground.text.anchors import paths_in, symbols_in
from upwell.ground.trace import LOG
from upwell.ground.types.memory import Found, Hit, Memory, Query, Trust
from upwell.ground.types.rpc import Ping
from upwell.memory.external.dialects import (
    Dialect,
    ServerHit,
    UnreadableResult,
    body_of,
    dialect_of,
)
from upwell.memory.external.waiting import Patience, Waiting, rescored
from upwell.memory.records import content_hash


class Answers(Struct, frozen=True):
    """A server's unparsed results for one query, and the texts that were sent to the server."""

    dialect: Dialect
    results: tuple[Mapping[str, Any], ...]
    asked: tuple[str, ...] = ()


SIGNAL = "ltm"
"""The name of the signal that contains the server's own score."""
MAX_CHARS = 4_000
_CUT = f"\n[cut after {MAX_CHARS} characters; the memory server has the rest]"
MAX_MEMORIES = 40
MAX_CACHED = 500
RETENTION_SECONDS = 30 * 86_400.0
PING_SECONDS = 10.0
_MASK = re.compile(r"\[REDACTED:[\w-]*\]")
_HINT = "check ltm.command or ltm.url; `upwell doctor` tests the server"


class ServerCalls(Protocol):
    """A running memory server. If it fails, its methods raise `RecallUnavailable`."""

    def ready(self) -> bool:
        """Return whether the server is up, and start it if it is not."""
        ...

    async def tools(self, deadline: Deadline) -> Mapping[str, frozenset[str]]:
        """Map each tool's name to the names of its declared arguments. Waits until the server is
        up."""
        ...

    async def call(
        self, tool: str, arguments: Mapping[str, Any], deadline: Deadline
    ) -> Mapping[str, Any]: ...

    async def aclose(self) -> None: ...


class KeptHits:
    """Stores hits so that they can be read by id later, because most servers have no tool for that.
    The latest hits are held in RAM. After each search, new hits are also written to `ttl_store`,
    where other processes can read them for 30 days. If `ttl_store` fails, `get()` finds only the
    hits in RAM."""

    def __init__(self, ttl_store: TtlStore | None = None) -> None:
        self._ttl_store = ttl_store
        self._latest: OrderedDict[str, Memory] = OrderedDict()
        self._writes = BackgroundTasks("keeping hits of a memory server")

    def keep(self, memories: Sequence[Memory]) -> None:
        """Store these memories. Their secrets must already be masked."""
        fresh = [memory for memory in memories if memory.id not in self._latest]
        for memory in memories:
            self._latest[memory.id] = memory
            self._latest.move_to_end(memory.id)
        while len(self._latest) > MAX_CACHED:
            self._latest.popitem(last=False)
        if fresh and self._ttl_store is not None:
            self._writes.start(self._write(self._ttl_store, fresh))

    async def get(self, memory_id: str) -> Memory | None:
        latest = self._latest.get(memory_id)
        if latest is not None or self._ttl_store is None:
            return latest
        try:
            item = (await self._ttl_store.get(EntryKind.PASSAGE, [memory_id])).get(memory_id)
        except StoreError as error:
            LOG.warning("the hits of a memory server cannot be read: %s", error)
            return None
        return _decoded(memory_id, item.value) if item else None

    async def aclose(self) -> None:
        await self._writes.drain()

    async def _write(self, ttl_store: TtlStore, memories: Sequence[Memory]) -> None:
        entries = {memory.id: _encoded(memory) for memory in memories}
        try:
            await ttl_store.put(EntryKind.PASSAGE, entries, ttl_seconds=RETENTION_SECONDS)
        except StoreError as error:
            LOG.warning("hits of a memory server were not kept: %s", error)


class LtmRecall:
    """`Recall` over the server behind `calls`. `kept` stores the server's hits for later reads by
    id."""

    name = "ltm"

    def __init__(
        self,
        calls: ServerCalls,
        patience: Patience | None = None,
        *,
        kept: KeptHits | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._calls = calls
        self._clock = clock
        self._waiting = Waiting[Answers](patience or Patience(), unavailable, clock)
        self._kept = kept or KeptHits()

    async def search(self, query: Query, deadline: Deadline) -> Found:
        if (late := self._waiting.late(query)) is not None:
            return await self._found(late, query, deadline)
        if not query.awaited and not self._calls.ready():
            raise unavailable("is not up yet")
        answers = await self._waiting.answer(query, deadline, self._request)
        try:
            found = await self._found(answers, query, deadline)
        except RecallUnavailable as error:
            self._waiting.fail(error, query)
            raise
        self._waiting.succeed(query)
        return found

    async def get(self, memory_id: str) -> Memory | None:
        return await self._kept.get(memory_id) if memory_id.startswith(LTM_ID) else None

    async def ping(self) -> Ping:
        try:
            async with asyncio.timeout(PING_SECONDS):
                tools = await self._calls.tools(Deadline.after(PING_SECONDS, self._clock))
            dialect, tool = _dialect(tools)
        except TimeoutError:
            return Ping(ok=False, detail=f"did not answer within {PING_SECONDS:g} s", hint=_HINT)
        except RecallUnavailable as error:
            return Ping(ok=False, detail=error.message, hint=error.hint)
        return Ping(ok=True, detail=f"{dialect.name}, searched with {tool}, {len(tools)} tools")

    def warm(self) -> None:
        """Start the server in advance, so that searches need not wait until it is up."""
        self._calls.ready()

    async def aclose(self) -> None:
        await self._waiting.aclose()
        await self._kept.aclose()
        await self._calls.aclose()

    async def _request(self, query: Query, deadline: Deadline) -> Answers:
        try:
            async with asyncio.timeout(deadline.remaining()):
                tools = await self._calls.tools(deadline)
                dialect, tool = _dialect(tools)
                texts = dialect.requests(_without_secrets(query))
                results = await asyncio.gather(
                    *(
                        self._calls.call(tool, dialect.filled(text, tools[tool]), deadline)
                        for text in texts
                    )
                )
        except TimeoutError:
            raise unavailable("did not answer") from None
        return Answers(dialect, tuple(results), tuple(texts))

    async def _found(self, answers: Answers, query: Query, deadline: Deadline) -> Found:
        try:
            hits = await asyncio.to_thread(self._scored, answers, query, deadline)
        except UnreadableResult as error:
            raise unavailable(f"gave no hits: {error}") from error
        self._kept.keep([hit.memory for hit in hits])
        asked = tuple(f"{self.name}: {text}" for text in answers.asked)
        return Found(tuple(hits), asked=asked)

    def _scored(self, answers: Answers, query: Query, deadline: Deadline) -> list[Hit]:
        memories: dict[str, Memory] = {}
        scores: dict[str, float] = {}
        for result in answers.results:
            for server_hit in answers.dialect.read(body_of(result))[:MAX_MEMORIES]:
                memory = _memory(server_hit)
                memories.setdefault(memory.id, memory)
                if server_hit.score is not None:
                    scores[memory.id] = server_hit.score
        first = list(memories.values())[:MAX_MEMORIES]
        return [
            replace(hit, signals={**hit.signals, SIGNAL: scores[hit.memory.id]})
            if hit.memory.id in scores
            else hit
            for hit in rescored(first, query, self._clock.now(), deadline, scores)
        ]


def _dialect(tools: Mapping[str, frozenset[str]]) -> tuple[Dialect, str]:
    dialect = dialect_of(tools)
    if dialect is not None:
        return dialect, next(name for name in dialect.tools if name in tools)
    names = ", ".join(sorted(tools))[:200] or "none"
    raise RecallUnavailable(
        f"the memory server has no search tool that upwell knows; its tools: {names}",
        source="ltm",
        hint="any tool named like search or find that takes a `query` would do",
    )


def _without_secrets(query: Query) -> Query:
    """Remove secrets, because the query is sent to another program."""
    return replace(
        query,
        texts=tuple(_MASK.sub(" ", redact(text)[0]) for text in query.texts),
        paths=tuple(path for path in query.paths if not has_secret(path)),
        symbols=tuple(symbol for symbol in query.symbols if not has_secret(symbol)),
    )


def _memory(hit: ServerHit) -> Memory:
    """Every project sees the memory. Its secrets are masked, and its id is derived from its
    text."""
    complete = hit.text.strip()
    text = redacted_start(complete, MAX_CHARS)
    if len(complete) > MAX_CHARS:
        text += _CUT
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
    return RecallUnavailable(f"the memory server {failure}", source="ltm", hint=_HINT)


def _encoded(memory: Memory) -> bytes:
    texts = {"text": memory.text, "source": memory.source}
    lists = {"tags": memory.tags, "paths": memory.paths, "symbols": memory.symbols}
    return json.dumps(texts | lists).encode()


def _decoded(memory_id: str, value: bytes) -> Memory:
    fields = json.loads(value)
    return Memory(
        id=memory_id,
        text=fields["text"],
        source=fields["source"],
        tags=tuple(fields["tags"]),
        paths=tuple(fields["paths"]),
        symbols=tuple(fields["symbols"]),
        trust=Trust.IMPORTED,
    )
