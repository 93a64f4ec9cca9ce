"""Serve an ASGI application with uvicorn on our own socket. uvicorn leaves signals to the caller,
and its messages go to upwell's log."""

import asyncio
import contextlib
import ipaddress
import logging
import select
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from upwell.ground.errors import UsageError
from upwell.ground.listener import Listener
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import IN_SCOPE

MAX_CONNECTIONS = 256
MAX_STRANGERS = 64
"""How many connections without a valid token may be open. Beyond this number, the oldest of them is
closed, so that strangers cannot crowd out clients with a token.
"""
KEEP_ALIVE_SECONDS = 30
REQUEST_SECONDS = 10.0
"""The time limit for the head of a request. It runs from the first byte of the head or, for the
first request, from the start of the connection.
"""
LINGER_SECONDS = 0.5
"""How long a draining server keeps reading requests after it stopped accepting connections."""
NOTICE_SECONDS = 2.0
"""How long a gateway that ends says so before it stops listening, if there may be others."""
DRAIN_SECONDS = 20
"""How long its open requests may then take."""
UNREAD_SECONDS = 0.01
STARTUP_FAILURE = 3
WARNING_SECONDS = 60.0
"""The same warning is logged at most once within this time."""


class TimedProtocol(H11Protocol):
    """Closes a connection if the head of a request takes too long, and the oldest one without a
    token if there are too many."""

    def __init__(self, server: "HttpServer", ended: Callable[[], None]) -> None:
        super().__init__(server.config, server.server_state, server.lifespan.state)
        self._strangers = server.strangers
        self._max_strangers = server.max_strangers
        self._ended = ended
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._limit_head()
        self._strangers[self] = None
        if len(self._strangers) > self._max_strangers:
            stranger = next((old for old in [*self._strangers] if not old._recognise()), None)
            if stranger is not None:
                self._strangers.pop(stranger)
                stranger.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._strangers.pop(self, None)
        super().connection_lost(exc)
        self._ended()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._head_timer is None and self.conn.trailing_data[0]:
            self._limit_head()

    def on_response_complete(self) -> None:
        self._recognise()
        super().on_response_complete()
        if self._head_timer is None and self.conn.trailing_data[0]:
            self._limit_head()

    def shutdown(self) -> None:
        """Close the connection once it is idle. A request that has arrived but is unread is
        answered first, because closing a socket with unread data resets the connection.
        """
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and not self.transport.is_closing():
            poll = select.poll()
            poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
            if poll.poll(0):
                self.loop.call_later(UNREAD_SECONDS, self.shutdown)
                return
        super().shutdown()

    def _recognise(self) -> bool:
        """Return whether the connection has sent a valid token. If so, the guard has put the
        principal into the scope, and the connection no longer counts as a stranger's.
        """
        if self.scope and IN_SCOPE in self.scope:
            self._strangers.pop(self, None)
        return self not in self._strangers

    def _limit_head(self) -> None:
        self._head_timer = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class Seldom(logging.Filter):
    """Logs the same warning only once a minute, because strangers can cause any number of them."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now - self._last.get(record.msg, -WARNING_SECONDS) < WARNING_SECONDS:
            return False
        self._last[record.msg] = now
        return True


class HttpServer(uvicorn.Server):
    """Exits when `should_exit` is set, or after `drain()`. The caller handles signals.

    `strangers` are the connections that have not sent a valid token, oldest first.
    """

    is_draining = False
    max_strangers = MAX_STRANGERS

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.strangers: OrderedDict[TimedProtocol, None] = OrderedDict()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise SystemExit(STARTUP_FAILURE)
        listeners = [
            Listener(
                listening,
                lambda ended: TimedProtocol(self, ended),
                # This is more than uvicorn's own limit, beyond which uvicorn responds with 503.
                max_open=MAX_CONNECTIONS + 2 * MAX_STRANGERS,
                name="HTTP server",
            )
            for listening in sockets or ()
        ]
        self.max_strangers = min(
            [MAX_STRANGERS, *(max(1, listener.max_open // 2) for listener in listeners)]
        )
        self.servers: list[Any] = listeners
        for listener in listeners:
            listener.start()
        self.started = True

    async def drain(self, end_streams: Callable[[], None], *, notice_seconds: float) -> None:
        """Exit, if possible without dropping a request. For `notice_seconds`, the server still
        accepts connections, but asks clients to go elsewhere: `/readyz` fails, and responses say
        `Connection: close`. Then the server stops listening, and open requests get `DRAIN_SECONDS`
        to finish. `end_streams()` ends the streams, which would otherwise stay open."""
        self.config.timeout_graceful_shutdown = DRAIN_SECONDS
        self.is_draining = True
        if notice_seconds:
            await asyncio.sleep(notice_seconds)
            for listener in self.servers:
                listener.finish()
            # Requests on the last accepted connections may still be on their way.
            await asyncio.sleep(LINGER_SECONDS)
        end_streams()
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Closing:
    """Asks clients to close their connections while the server drains."""

    def __init__(self, app: ASGIApp, is_draining: Callable[[], bool]) -> None:
        self._app = app
        self._is_draining = is_draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def closing(message: Message) -> None:
            # The server may have begun to drain after the request began.
            if message["type"] == "http.response.start" and self._is_draining():
                headers = [*message.get("headers", ()), (b"connection", b"close")]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, closing)


def http_server(app: ASGIApp) -> HttpServer:
    """Return a server for `app`. Run it with `serve(sockets=[…])`."""
    logger = logging.getLogger("uvicorn")
    logger.handlers, logger.propagate = LOG.handlers, False
    logging.getLogger("uvicorn.error").addFilter(Seldom())
    server: HttpServer
    server = HttpServer(
        uvicorn.Config(
            _Closing(app, lambda: server.is_draining),
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS + MAX_STRANGERS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=2,
            ws="none",
            http=TimedProtocol,
        )
    )
    return server


def address_of(text: str) -> tuple[str, int]:
    """Parse `HOST:PORT`, `[::1]:PORT`, or `PORT` for a port on 127.0.0.1. Anything else is a
    UsageError."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"{text[:60]!r} is not HOST:PORT", hint="for example 127.0.0.1:8765")
    return host.strip("[]") or "127.0.0.1", int(port)


def url_of(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"


def is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback


def listen(host: str, port: int) -> socket.socket:
    """Raises UsageError if the address cannot be used, for example because it is in use."""
    # asyncio disables Nagle's algorithm only for sockets that were created with an explicit
    # protocol. With the algorithm, every response waits 40 ms for an acknowledgement.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(MAX_CONNECTIONS)
    except OSError as error:
        listening.close()
        raise UsageError(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="choose another port"
        ) from error
    return listening
