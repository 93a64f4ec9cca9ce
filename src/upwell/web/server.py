"""Serving an ASGI application with uvicorn on our own socket, without its signals and its log."""

import asyncio
import contextlib
import ipaddress
import logging
import socket
import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import ClassVar

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from upwell.ground.errors import UsageError
from upwell.ground.trace import LOG
from upwell.ground.types.principal import IN_SCOPE

MAX_CONNECTIONS = 256
MAX_STRANGERS = 64
"""How many connections may be open without having shown a valid token. Beyond this number the
oldest of them is closed, so that strangers cannot crowd out clients with a token.
"""
KEEP_ALIVE_SECONDS = 30
REQUEST_SECONDS = 10.0
"""Time limit for the head of each request, from its first byte; for the first request, from the
start of the connection.
"""
WARNING_SECONDS = 60.0
"""The same warning is logged once within this time."""


class TimedProtocol(H11Protocol):
    """Closes a connection on which the head of a request takes too long, and the oldest connection
    without a token when there are too many.
    """

    strangers: ClassVar["OrderedDict[TimedProtocol, None]"] = OrderedDict()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_timer: asyncio.TimerHandle | None = None
        self._limit_head()
        self.strangers[self] = None
        if len(self.strangers) > MAX_STRANGERS:
            self._close_a_stranger()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.strangers.pop(self, None)
        super().connection_lost(exc)

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

    def _recognise(self) -> bool:
        """Note whether the connection has shown a valid token: the guard then puts the principal
        into the scope.
        """
        if self.scope and IN_SCOPE in self.scope:
            self.strangers.pop(self, None)
        return self not in self.strangers

    def _close_a_stranger(self) -> None:
        for stranger in list(self.strangers):
            if not stranger._recognise():
                self.strangers.pop(stranger)
                stranger.transport.abort()
                return

    def _limit_head(self) -> None:
        self._head_timer = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class Seldom(logging.Filter):
    """Lets each warning pass once a minute, because strangers can cause as many as they like."""

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
    """Ends when `should_exit` is set. The caller handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def http_server(app: ASGIApp) -> HttpServer:
    """A server for `app`. Run it with `serve(sockets=[…])`. It writes to upwell's own log."""
    logger = logging.getLogger("uvicorn")
    logger.handlers, logger.propagate = LOG.handlers, False
    logging.getLogger("uvicorn.error").addFilter(Seldom())
    return HttpServer(
        uvicorn.Config(
            app,
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


def address_of(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `[::1]:PORT`, or a port on loopback.

    Raises: UsageError: the text has none of these forms.
    """
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"{text[:60]!r} is not HOST:PORT", hint="for example 127.0.0.1:8765")
    return host.strip("[]") or "127.0.0.1", int(port)


def url_of(host: str, port: int) -> str:
    """The gateway's address, for display."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"


def is_loopback(host: str) -> bool:
    """True if this is a loopback address."""
    return ipaddress.ip_address(host).is_loopback


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        UsageError: the address is in use or not ours.
    """
    # asyncio disables Nagle's algorithm only for sockets that name their protocol; with the
    # algorithm, every response waits 40 ms for an acknowledgement.
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
