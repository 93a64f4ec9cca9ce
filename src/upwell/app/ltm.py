"""The memory server configured by `ltm.*`: an upstream for upwell itself, hidden from agents."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from upwell.config import Config
from upwell.gateway.clients import Audience
from upwell.gateway.options import GatewayOptions, ServerOptions, Transport
from upwell.gateway.upstreams.connection import connect
from upwell.gateway.upstreams.supervisor import ServerState, Upstream
from upwell.ground.clock import Deadline
from upwell.ground.errors import ConfigError, UpstreamError
from upwell.ground.ledger import TtlStore
from upwell.memory.external.ltm import KeptHits, LtmRecall, unavailable
from upwell.memory.external.waiting import Patience
from upwell.memory.options import LtmOptions, LtmTransport
from upwell.wire.rawjson import NotJson, RawObject, dumps, loads

NAME = "ltm"
MAX_ANSWER_BYTES = 4_000_000


def open_ltm(config: Config, ttl_store: TtlStore, patience: Patience) -> LtmRecall:
    """The configured memory server. It is not started yet.

    Raises:
        ConfigError: a key that another key needs is missing.
    """
    program = server_of(config.ltm, str(config.home.root))
    server = LtmServer(program, config.gateway, config.environment)
    return LtmRecall(server, patience, kept=KeptHits(ttl_store))


def server_of(options: LtmOptions, folder: str) -> ServerOptions:
    """The `ltm.*` settings as an upstream. A URL without a transport means streamable HTTP. A
    program runs in `folder`, so that no cloned repository can configure it.

    Raises:
        ConfigError: see `open_ltm()`.
    """
    remote = options.transport in (LtmTransport.SSE, LtmTransport.STREAMABLE_HTTP)
    if remote and not options.url:
        raise ConfigError(f"ltm.transport = {options.transport} needs ltm.url", key="ltm.url")
    if options.url and options.transport is not LtmTransport.STDIO:
        sse = options.transport is LtmTransport.SSE
        transport = Transport.SSE if sse else Transport.HTTP
        return ServerOptions(
            name=NAME, url=options.url, headers=options.headers, transport=transport
        )
    command = options.command
    program, *args = (command,) if isinstance(command, str) else command
    return ServerOptions(name=NAME, command=program, args=tuple(args), cwd=folder)


class LtmServer:
    """Implements `ServerCalls` with an upstream server. The first use, including `ready()`, starts
    the server. If it fails, it restarts with backoff."""

    def __init__(
        self, server: ServerOptions, options: GatewayOptions, environment: Mapping[str, str]
    ) -> None:
        connecting = partial(connect, environment=environment, max_bytes=MAX_ANSWER_BYTES)
        self._upstream = Upstream(server, options, connecting, _ignore_changes, Audience())
        self._running: asyncio.Task[None] | None = None

    def ready(self) -> bool:
        if self._running is None:
            self._running = asyncio.create_task(self._upstream.run(), name="upstream ltm")
        return self._upstream.state is ServerState.READY

    async def tools(self, deadline: Deadline) -> Mapping[str, frozenset[str]]:
        if not self.ready():
            await self._ask("tools/list", {}, deadline)
        try:
            return {
                name: _declared(tool)
                for tool in self._upstream.tools
                if isinstance(name := tool.value("name"), str)
            }
        except NotJson as error:
            raise unavailable(f"lists unreadable tools: {error}") from error

    async def call(
        self, tool: str, arguments: Mapping[str, Any], deadline: Deadline
    ) -> Mapping[str, Any]:
        return await self._ask("tools/call", {"name": tool, "arguments": arguments}, deadline)

    async def aclose(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _ask(
        self, method: str, params: Mapping[str, Any], deadline: Deadline
    ) -> Mapping[str, Any]:
        """Call the server. A call that times out is also cancelled on the server.

        Raises:
            RecallUnavailable: the call failed in any way.
        """
        try:
            async with asyncio.timeout(deadline.remaining()):
                # A search changes nothing, so it may be repeated if the server restarts meanwhile.
                reply = await self._upstream.call(
                    method, RawObject.parse(dumps(params)), idempotent=True
                )
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
            raise unavailable(f"sent an unreadable answer: {error}") from error
        if not isinstance(result, dict):
            raise unavailable("sent an answer that is not an object")
        return result


async def _ignore_changes(upstream: Upstream) -> None:
    """Do nothing, because every search reads the list of tools again."""


def _declared(tool: RawObject) -> frozenset[str]:
    schema = tool.value("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return frozenset(properties) if isinstance(properties, dict) else frozenset()
