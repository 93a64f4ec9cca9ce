"""The server in front: answers the agent on stdio, in either era."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from upwell.gateway.catalog import Catalog, LocalTools, Target
from upwell.gateway.eras import (
    MODERN_VERSIONS,
    UNSUPPORTED_VERSION,
    Envelope,
    capabilities,
    envelope_of,
    handshake_result,
    meta_of,
    modern_result,
)
from upwell.gateway.greeting import INSTRUCTIONS, handshake
from upwell.gateway.options import GatewayOptions
from upwell.gateway.pipeline import Pipeline
from upwell.gateway.relay import outgoing
from upwell.gateway.upstream import Upstream
from upwell.ground.errors import UpwellError
from upwell.ground.trace import LOG, new_trace_id
from upwell.ground.types import Reply
from upwell.wire.lines import Line, Sink
from upwell.wire.peer import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Message,
    Peer,
    PeerGone,
    error_body,
)
from upwell.wire.rawjson import NotJson, RawObject, dumps, kind_of

Method = Callable[[Message, Envelope | None], Awaitable[RawObject]]
"""Answers a request that is no call of a tool."""


class Refused(Exception):
    """A request that gets a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.body = error_body(code, message, data)


class Front:
    """One agent's connection. Every request is answered once; requests run side by side. `methods`
    are those that others answer."""

    def __init__(
        self,
        catalog: Catalog,
        upstreams: Sequence[Upstream],
        own: LocalTools,
        pipeline: Pipeline,
        options: GatewayOptions,
        methods: Mapping[str, Method] | None = None,
    ) -> None:
        self.session = f"gateway-{secrets.token_hex(6)}"
        self._catalog = catalog
        self._upstreams = upstreams
        self._own = own
        self._pipeline = pipeline
        self._options = options
        self._peer: Peer | None = None
        self._running: dict[bytes, asyncio.Task[None]] = {}
        self._listed = b""
        self._methods: Mapping[str, Method] = {
            **(methods or {}),
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": self._ping,
            "tools/list": self._list_tools,
        }

    async def serve(self, lines: AsyncIterator[Line], sink: Sink) -> None:
        """Answer until the agent closes its side, then end what is still running."""
        self._peer = Peer(lines, sink, self._incoming, complains=True)
        try:
            await self._peer.run()
        finally:
            for task in list(self._running.values()):
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def tools_changed(self) -> None:
        """Tell the agent, if it has seen another list before."""
        listing = self._catalog.listing
        if self._peer is None or not self._listed or listing == self._listed:
            return
        self._listed = listing
        try:
            await self._peer.notify("notifications/tools/list_changed")
        except PeerGone as error:
            LOG.debug("the agent is gone: %s", error)

    async def _incoming(self, message: Message) -> None:
        if message.id is not None:
            task = asyncio.create_task(self._answer(message.id, message))
            self._running[message.id] = task
        elif message.method == "notifications/cancelled":
            self._cancel(message)

    def _cancel(self, message: Message) -> None:
        try:
            identity = RawObject.parse(message.params).get("requestId")
        except NotJson:
            return
        if identity is not None and identity in self._running:
            self._running[identity].cancel()

    async def _answer(self, identity: bytes, message: Message) -> None:
        assert self._peer is not None
        try:
            reply = await self._reply(message)
            await self._peer.answer(identity, reply)
        except PeerGone as error:
            LOG.info("an answer could not be delivered: %s", error)
        finally:
            if self._running.get(identity) is asyncio.current_task():
                del self._running[identity]

    async def _reply(self, message: Message) -> Reply:
        """The answer to a request: always one, whatever happens inside."""
        try:
            if kind_of(message.params) != "object":
                raise Refused(INVALID_PARAMS, "params must be an object")
            params = RawObject.parse(message.params)
            envelope = _checked_envelope(envelope_of(params))
            if message.method == "tools/call":
                reply = await self._call(params, envelope)
            else:
                reply = await self._plain(message, envelope)
        except Refused as refused:
            return Reply(error=refused.body)
        except NotJson as error:
            return Reply(error=error_body(INVALID_REQUEST, f"the request cannot be read: {error}"))
        except UpwellError as error:
            return Reply(error=error_body(INTERNAL_ERROR, str(error)))
        except Exception as error:
            LOG.exception("a request failed inside upwell")
            return Reply(error=error_body(INTERNAL_ERROR, f"upwell failed: {error!r}; see its log"))
        if reply.error:
            return reply
        result = RawObject.parse(reply.result)
        shaped = modern_result(result) if envelope else handshake_result(result)
        return Reply(result=shaped.encode())

    async def _plain(self, message: Message, envelope: Envelope | None) -> Reply:
        method = self._methods.get(message.method or "")
        if method is None:
            raise Refused(METHOD_NOT_FOUND, f"upwell does not offer {message.method}")
        return Reply(result=(await method(message, envelope)).encode())

    async def _initialize(self, message: Message, _: Envelope | None) -> RawObject:
        return _object(handshake(message))

    async def _discover(self, _: Message, __: Envelope | None) -> RawObject:
        return _object(
            {
                "supportedVersions": list(MODERN_VERSIONS),
                "capabilities": capabilities(),
                "instructions": INSTRUCTIONS,
                "ttlMs": 0,
                "cacheScope": "private",
            }
        )

    async def _ping(self, _: Message, envelope: Envelope | None) -> RawObject:
        if envelope:
            raise Refused(METHOD_NOT_FOUND, "ping is not part of this protocol version")
        return RawObject()

    async def _list_tools(self, _: Message, envelope: Envelope | None) -> RawObject:
        """Every tool of every server that is up; those still starting get a moment."""
        starting = [asyncio.create_task(upstream.settled()) for upstream in self._upstreams]
        if starting:
            _done, late = await asyncio.wait(starting, timeout=self._options.list_wait_seconds)
            for task in late:
                task.cancel()
        self._catalog.rebuild()
        self._listed = self._catalog.listing
        result = RawObject(((b'"tools"', self._listed),))
        if envelope:
            result = result.replaced("ttlMs", b"0").replaced("cacheScope", b'"private"')
        return result

    async def _call(self, params: RawObject, envelope: Envelope | None) -> Reply:
        name = params.value("name")
        if not isinstance(name, str):
            raise Refused(INVALID_PARAMS, "tools/call needs the name of a tool")
        target = await self._target(name)
        if target.upstream is None:
            args = params.value("arguments", {})
            if not isinstance(args, dict):
                raise Refused(INVALID_PARAMS, "arguments must be an object")
            return await self._own.call(target.tool, args, self.session)
        if kind_of(params.get("arguments") or b"{}") != "object":
            raise Refused(INVALID_PARAMS, "arguments must be an object")
        trace_id = _trace_id(meta_of(params)) or new_trace_id()
        call = outgoing(params, target, trace_id)
        offered = envelope.capabilities if envelope else b"{}"
        return await self._pipeline.call(call, target.upstream, self.session, offered)

    async def _target(self, name: str) -> Target:
        """Where `name` leads; waits for its server when that is still starting."""
        target = self._catalog.resolve(name)
        if target is None:
            server = name.partition("__")[0]
            for upstream in self._upstreams:
                if upstream.name == server:
                    await upstream.settled()
                    self._catalog.rebuild()
                    if not upstream.tools and upstream.failure is not None:
                        raise upstream.failure
            target = self._catalog.resolve(name)
        if target is None:
            raise Refused(INVALID_PARAMS, f"Unknown tool: {name}")
        return target


def _checked_envelope(envelope: Envelope | None) -> Envelope | None:
    if envelope is not None and envelope.version not in MODERN_VERSIONS:
        raise Refused(
            UNSUPPORTED_VERSION,
            "Unsupported protocol version",
            {"supported": list(MODERN_VERSIONS), "requested": envelope.version},
        )
    return envelope


def _object(value: Mapping[str, Any]) -> RawObject:
    return RawObject.parse(dumps(value))


def _trace_id(meta: RawObject) -> str:
    """The trace id of a W3C `traceparent`, "" when there is none."""
    parent = meta.value("traceparent")
    parts = parent.split("-") if isinstance(parent, str) else []
    return parts[1] if len(parts) == 4 else ""
