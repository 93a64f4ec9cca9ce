"""Serving an ASGI application with uvicorn on our own socket, without its signals and its log."""

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from upwell.ground.errors import UsageError
from upwell.ground.trace import LOG

MAX_CONNECTIONS = 256
KEEP_ALIVE_SECONDS = 30
REQUEST_SECONDS = 10.0
"""Time limit for the head of a connection's first request."""


class TimedProtocol(H11Protocol):
    """Closes a connection whose first request is slow to come, since idle connections would use up
    the limit."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(REQUEST_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        if self.cycle is None:
            self.transport.close()


class HttpServer(uvicorn.Server):
    """Ends when `should_exit` is set. The caller handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def http_server(app: ASGIApp) -> HttpServer:
    """A server for `app`. Run it with `serve(sockets=[…])`. It logs to our log."""
    logger = logging.getLogger("uvicorn")
    logger.handlers, logger.propagate = LOG.handlers, False
    return HttpServer(
        uvicorn.Config(
            app,
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=2,
            ws="none",
            http=TimedProtocol,
        )
    )


def address_of(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `[::1]:PORT`, or a port on loopback.

    Raises:
        UsageError: none of these forms.
    """
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"{text[:60]!r} is not HOST:PORT", hint="for example 127.0.0.1:8765")
    return host.strip("[]") or "127.0.0.1", int(port)


def url_of(host: str, port: int) -> str:
    """The gateway's address, for display."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"


def is_loopback(host: str) -> bool:
    """Is this a loopback address?"""
    return ipaddress.ip_address(host).is_loopback


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        UsageError: the address is in use or not ours.
    """
    # asyncio disables Nagle's algorithm only for sockets that name their protocol; without that,
    # every response waits 40 ms for an acknowledgement.
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
