"""Answers kept for a while: only of tools that the user named and that say they only read.

What the answer depends on is in its key: the server and its configuration, the tool's declaration,
the arguments, what else the request says, and who asks. Never kept: errors, questions to the
client, tasks, bytes that had to be mended, and anything with a secret in it. Calls that are the
same and run at once are made once.
"""

import asyncio
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from upwell.gateway.client import Client
from upwell.gateway.eras import bare, meta_of
from upwell.gateway.options import CacheOptions, ServerOptions
from upwell.ground.errors import StoreError
from upwell.ground.names import first_match
from upwell.ground.shelf import Shelf
from upwell.ground.trace import LOG
from upwell.ground.types import Reply, ToolCall
from upwell.wire.rawjson import NotJson, RawObject

KIND = "response"
PATIENCE_SECONDS = 0.2
"""Where the disk does not answer so soon, the server is asked."""
MAX_RESULT_BYTES = 1_000_000
_ONLY = frozenset({"name", "arguments", "_meta"})
_OF_THIS_CALL = ("progressToken", "traceparent", "tracestate", "baggage")
Ask = Callable[[], Awaitable[Reply]]


@dataclass(slots=True)
class _Flight:
    """A call under way, and how many wait for it."""

    task: "asyncio.Task[Reply]"
    waiting: int = 0


class Cache:
    """Keeps answers on the shelf. `has_secret` looks through a text, `secret` makes the keys."""

    def __init__(
        self,
        shelf: Shelf,
        secret: bytes,
        options: CacheOptions,
        has_secret: Callable[[str], bool],
    ) -> None:
        self._shelf = shelf
        self._secret = secret
        self._options = options
        self._has_secret = has_secret
        self._flights: dict[str, _Flight] = {}
        self._behind: set[asyncio.Task[None]] = set()

    async def through(
        self, call: ToolCall, server: ServerOptions, client: Client, ask: Ask
    ) -> Reply:
        """The answer that is kept, or what `ask` gives."""
        key = self._key(call, server, client)
        if not key:
            return await ask()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                kept = (await self._shelf.get(KIND, [key])).get(key)
            if kept:
                return Reply(result=kept.value)
        except (StoreError, TimeoutError) as error:
            LOG.warning("kept answers cannot be read: %s", error)
        flight = self._flights.get(key)
        if flight is None:
            flight = _Flight(asyncio.create_task(self._asked(key, ask)))
            self._flights[key] = flight
            flight.task.add_done_callback(lambda _: self._flights.pop(key, None))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                flight.task.cancel()

    async def aclose(self) -> None:
        """Finish what is being kept."""
        await asyncio.gather(*self._behind, return_exceptions=True)

    async def _asked(self, key: str, ask: Ask) -> Reply:
        reply = await ask()
        if _keepable(reply):
            task = asyncio.create_task(self._keep(key, reply.result))
            self._behind.add(task)
            task.add_done_callback(self._behind.discard)
        return reply

    async def _keep(self, key: str, result: bytes) -> None:
        text = result.decode(errors="replace")
        if await asyncio.to_thread(self._has_secret, text):
            return
        try:
            ttl_seconds = self._options.ttl_seconds
            await self._shelf.put(KIND, {key: result}, ttl_seconds=ttl_seconds)
        except StoreError as error:
            LOG.warning("an answer cannot be kept: %s", error)

    def _key(self, call: ToolCall, server: ServerOptions, client: Client) -> str:
        """Under what the answer stands; "" where it may not be kept."""
        name = f"{call.server}__{call.tool}"
        read_only = call.annotations.get("readOnlyHint") is True
        if not read_only or not first_match(name, self._options.tools):
            return ""
        params = RawObject.parse(call.params)
        if any(json.loads(key) not in _ONLY for key, _ in params.members):
            return ""
        parts = [
            json.dumps(_plain(asdict(server)), sort_keys=True),
            call.tool,
            call.declared,
            _canonical(params.get("arguments") or b"{}"),
            _canonical(_vendor(params).encode()),
            client.principal.name,
            client.capabilities.decode(errors="replace"),
        ]
        said = json.dumps(parts).encode()
        return hmac.new(self._secret, said, hashlib.sha256).hexdigest()


def _plain(value: Mapping[str, Any]) -> dict[str, str]:
    return {name: repr(part) for name, part in value.items()}


def _vendor(params: RawObject) -> RawObject:
    """What `_meta` says beside the names of this one call and of its client: the answer may depend
    on it."""
    return meta_of(bare(params)).without(*_OF_THIS_CALL)


def _canonical(arguments: bytes) -> str:
    """The same text for the same arguments: order and spaces do not count, how a number is
    written and a key that stands there twice do."""
    try:
        read = json.loads(
            arguments, parse_int=_lexeme, parse_float=_lexeme, object_pairs_hook=_members
        )
        return json.dumps(read)
    except (ValueError, RecursionError):
        return arguments.decode(errors="replace")


def _lexeme(number: str) -> dict[str, str]:
    return {"number": number}


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object's members by name; of one name in their order."""
    return {"object": sorted(pairs, key=lambda pair: pair[0])}


def _keepable(reply: Reply) -> bool:
    if reply.error or reply.repaired or len(reply.result) > MAX_RESULT_BYTES:
        return False
    try:
        result = RawObject.parse(reply.result)
        kind = result.value("resultType", "complete")
        failed = result.value("isError", False)
    except NotJson:
        return False
    return kind == "complete" and not failed and "task" not in result
