"""The memory server of `ltm.*`: an upstream of our own, in front of nobody."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from upwell.config import Config
from upwell.gateway.audience import Audience
from upwell.gateway.connection import connect
from upwell.gateway.options import GatewayOptions, ServerOptions, Transport
from upwell.gateway.upstream import State, Upstream
from upwell.ground.errors import ConfigError, UpstreamError
from upwell.ground.limits import Deadline
from upwell.memory.ltm import LtmRecall, Patience, unavailable
from upwell.memory.options import LtmOptions, LtmProfile, LtmTransport
from upwell.wire.rawjson import NotJson, RawObject, dumps, loads

NAME = "ltm"
MAX_ANSWER_BYTES = 4_000_000


def open_ltm(config: Config) -> LtmRecall:
    """The memory server that is configured. It is started when it is asked first.

    Raises:
        ConfigError: keys that belong together are not all there.
    """
    options = replace(config.gateway, max_line_bytes=MAX_ANSWER_BYTES)
    patience = Patience(
        race_seconds=config.surface.race_ms / 1000,
        max_failures=config.surface.circuit_max_failures,
        reset_seconds=config.surface.circuit_reset_seconds,
    )
    server = LtmServer(server_of(config.ltm, str(config.home.root)), options, config.environment)
    return LtmRecall(server, config.ltm, patience)


def server_of(options: LtmOptions, folder: str) -> ServerOptions:
    """`ltm.*` as an upstream. Without a transport, an address is streamable HTTP. A program runs in
    `folder`, so that no cloned repository configures it.

    Raises:
        ConfigError: see `open_ltm`.
    """
    remote = options.transport in (LtmTransport.SSE, LtmTransport.STREAMABLE_HTTP)
    if remote and not options.url:
        raise ConfigError(
            f"ltm.transport is {options.transport}, and there is no ltm.url", key="ltm.url"
        )
    if options.profile is LtmProfile.GENERIC and not options.tool:
        raise ConfigError("ltm.profile is generic, and there is no ltm.tool", key="ltm.tool")
    if options.url and options.transport is not LtmTransport.STDIO:
        sse = options.transport is LtmTransport.SSE
        transport = Transport.SSE if sse else Transport.HTTP
        return ServerOptions(
            name=NAME, url=options.url, headers=options.headers, transport=transport
        )
    return ServerOptions(name=NAME, command=options.command, args=options.args, cwd=folder)


class LtmServer:
    """`Calls` over an upstream: supervised from the first question on, restarted with backoff."""

    def __init__(
        self, server: ServerOptions, options: GatewayOptions, environment: Mapping[str, str]
    ) -> None:
        connecting = partial(connect, environment=environment)
        self._upstream = Upstream(server, options, connecting, _unmoved, Audience())
        self._running: asyncio.Task[None] | None = None

    def ready(self) -> bool:
        if self._running is None:
            self._running = asyncio.create_task(self._upstream.run(), name="upstream ltm")
        return self._upstream.state is State.READY

    async def tools(self, deadline: Deadline) -> Mapping[str, frozenset[str]]:
        if not self.ready():
            await self._asked("tools/list", {}, deadline)
        try:
            return {
                name: _declared(tool)
                for tool in self._upstream.tools
                if isinstance(name := tool.value("name"), str)
            }
        except NotJson as error:
            raise unavailable(f"has tools that cannot be read: {error}") from error

    async def call(
        self, tool: str, arguments: Mapping[str, Any], deadline: Deadline
    ) -> Mapping[str, Any]:
        return await self._asked("tools/call", {"name": tool, "arguments": arguments}, deadline)

    async def aclose(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _asked(
        self, method: str, params: Mapping[str, Any], deadline: Deadline
    ) -> Mapping[str, Any]:
        """The decoded result; a wait that takes too long is told to the server.

        Raises:
            RecallUnavailable: it failed in any way.
        """
        try:
            async with asyncio.timeout(deadline.remaining()):
                reply = await self._upstream.call(method, RawObject.parse(dumps(params)))
            if reply.error:
                raise unavailable(
                    f"answered with an error: {reply.error[:200].decode(errors='replace')}"
                )
            result = await asyncio.to_thread(loads, reply.result)
        except TimeoutError:
            raise unavailable("took too long") from None
        except UpstreamError as error:
            raise unavailable(f"failed: {error.message}") from error
        except NotJson as error:
            raise unavailable(f"gave an answer that cannot be read: {error}") from error
        if not isinstance(result, dict):
            raise unavailable("gave an answer that is no object")
        return result


async def _unmoved(upstream: Upstream) -> None:
    """Its tools are looked at whenever it is asked."""


def _declared(tool: RawObject) -> frozenset[str]:
    schema = tool.value("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return frozenset(properties) if isinstance(properties, dict) else frozenset()
