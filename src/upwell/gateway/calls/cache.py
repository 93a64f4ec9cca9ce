"""A cache for tool results. A tool's results are cached only if the user has listed the tool in
`cache.tools`, and the tool declares itself read-only.

The cache key covers everything that a result depends on: the server and its configuration, the
tool's declaration, the arguments, the rest of the request, and the principal. Errors, questions to
the client, tasks, results with invalid UTF-8, and results that contain a secret are never cached.
If identical calls are made at the same time, only one of them is sent.
"""

import asyncio
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from msgspec import Struct

from upwell.gateway.clients import Client
from upwell.gateway.eras import bare, meta_of
from upwell.gateway.options import CacheOptions, ServerOptions
from upwell.ground.background import BackgroundTasks
from upwell.ground.errors import StoreError
from upwell.ground.ledger import EntryKind, TtlStore
from upwell.ground.names import first_match
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Reply, ToolCall
from upwell.wire.rawjson import NotJson, RawObject

KIND = EntryKind.RESPONSE
TTL_SECONDS = 300.0
READ_SECONDS = 0.2
"""How long to wait for the disk before calling the server instead."""
MAX_RESULT_BYTES = 1_000_000
_CACHEABLE_PARAMS = frozenset({"name", "arguments", "_meta"})
_PER_CALL_META = ("progressToken", "traceparent", "tracestate", "baggage")
Send = Callable[[], Awaitable[Reply]]


class _Flight(Struct):
    task: "asyncio.Task[Reply]"
    waiting: int = 0


class Cache:
    """The keys are HMACs with `secret`."""

    def __init__(
        self,
        ttl_store: TtlStore,
        secret: bytes,
        options: CacheOptions,
        has_secret: Callable[[str], bool],
    ) -> None:
        self._ttl_store = ttl_store
        self._secret = secret
        self._options = options
        self._has_secret = has_secret
        self._flights: dict[str, _Flight] = {}
        self._writes = BackgroundTasks("response cache")

    async def through(
        self, call: ToolCall, server: ServerOptions, client: Client, send: Send
    ) -> Reply:
        key = self._key(call, server, client)
        if not key:
            return await send()
        try:
            async with asyncio.timeout(READ_SECONDS):
                cached = (await self._ttl_store.get(KIND, [key])).get(key)
            if cached:
                return Reply(result=cached.value)
        except (StoreError, TimeoutError) as error:
            LOG.warning("cached answers cannot be read: %s", error)
        flight = self._flights.get(key) or self._start(key, send)
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                flight.task.cancel()

    async def aclose(self) -> None:
        await self._writes.drain()

    def _start(self, key: str, send: Send) -> _Flight:
        flight = self._flights[key] = _Flight(asyncio.create_task(self._fetch(key, send)))

        def finished(task: "asyncio.Task[Reply]") -> None:
            self._flights.pop(key, None)
            # Retrieve the exception. If all callers have stopped waiting, nobody else retrieves it,
            # and asyncio would log an error.
            if not task.cancelled():
                task.exception()

        flight.task.add_done_callback(finished)
        return flight

    async def _fetch(self, key: str, send: Send) -> Reply:
        reply = await send()
        if _is_cacheable(reply):
            self._writes.start(self._write(key, reply.result))
        return reply

    async def _write(self, key: str, result: bytes) -> None:
        text = result.decode(errors="replace")
        if await asyncio.to_thread(self._has_secret, text):
            return
        try:
            await self._ttl_store.put(KIND, {key: result}, ttl_seconds=TTL_SECONDS)
        except StoreError as error:
            LOG.warning("an answer cannot be cached: %s", error)

    def _key(self, call: ToolCall, server: ServerOptions, client: Client) -> str:
        name = f"{call.server}__{call.tool}"
        read_only = call.annotations.get("readOnlyHint") is True
        if not read_only or not first_match(name, self._options.tools):
            return ""
        params = RawObject.parse(call.params)
        if any(json.loads(key) not in _CACHEABLE_PARAMS for key, _ in params.members):
            return ""
        parts = [
            json.dumps({key: repr(part) for key, part in asdict(server).items()}, sort_keys=True),
            call.tool,
            call.declared,
            _canonical(params.get("arguments") or b"{}"),
            _canonical(meta_of(bare(params)).without(*_PER_CALL_META).encode()),
            client.principal.name,
            client.capabilities.decode(errors="replace"),
        ]
        return hmac.new(self._secret, json.dumps(parts).encode(), hashlib.sha256).hexdigest()


def _canonical(arguments: bytes) -> str:
    """Return the same text for equal arguments. Whitespace and the order of keys are ignored,
    repeated keys and the notation of numbers are not."""

    def lexeme(number: str) -> dict[str, str]:
        return {"number": number}

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {"object": sorted(pairs, key=lambda pair: pair[0])}

    try:
        value = json.loads(
            arguments, parse_int=lexeme, parse_float=lexeme, object_pairs_hook=members
        )
        return json.dumps(value)
    except (ValueError, RecursionError):
        return arguments.decode(errors="replace")


def _is_cacheable(reply: Reply) -> bool:
    if reply.error or reply.repaired or len(reply.result) > MAX_RESULT_BYTES:
        return False
    try:
        result = RawObject.parse(reply.result)
        kind = result.value("resultType", "complete")
        failed = result.value("isError", False)
    except NotJson:
        return False
    return kind == "complete" and not failed and "task" not in result
