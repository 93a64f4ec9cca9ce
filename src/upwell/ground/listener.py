"""Accepts connections on a listening socket, up to a limit.

asyncio's own server accepts all waiting connections before it handles the first. A burst of
connections then uses up the process's file descriptors, and every failing `accept` is logged with a
traceback. At its limit, a `Listener` leaves new connections in the system's queue until an open one
ends.
"""

import asyncio
import contextlib
import os
import resource
import socket
import time
from collections.abc import Awaitable, Callable

from upwell.ground.background import BackgroundTasks
from upwell.ground.trace import LOG

Protocol = Callable[[Callable[[], None]], asyncio.BaseProtocol]
"""Creates the protocol for a new connection. The argument is a function that the protocol must call
once, when the connection is lost.
"""
Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
AT_ONCE = 32
"""How many connections are accepted in one turn of the loop, before other tasks run."""
RETRY_SECONDS = 0.5
"""How long to wait after `accept` has failed, usually because no file descriptor is left."""
WARNING_SECONDS = 60.0
DESCRIPTOR_SHARE = 2
"""A listener uses at most 1/`DESCRIPTOR_SHARE` of the free file descriptors. The others are for
databases, servers and files.
"""


class Listener:
    """Serves at most `max_open` connections at a time on the socket `listening`, or fewer if the
    process has few file descriptors. `name` identifies the listener in the log.
    """

    def __init__(
        self, listening: socket.socket, protocol: Protocol, *, max_open: int, name: str
    ) -> None:
        self.max_open = max(1, min(max_open, free_descriptors() // DESCRIPTOR_SHARE))
        self._listening = listening
        self._protocol = protocol
        self._name = name
        self._places: set[object] = set()
        self._is_reading = self._is_closed = False
        self._nothing_open = asyncio.Event()
        self._nothing_open.set()
        self._warned_at = -WARNING_SECONDS
        self._loop = asyncio.get_running_loop()
        self._work = BackgroundTasks(name)
        listening.setblocking(False)

    def start(self) -> None:
        """Accept connections from now on."""
        if not self._is_reading and not self._is_closed:
            self._is_reading = True
            self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Stop listening. Open connections stay open."""
        self._pause()
        self._is_closed = True
        self._listening.close()

    def finish(self) -> None:
        """Accept the connections that are still waiting, up to the limit, then stop listening.
        Otherwise, closing the socket would reset these connections.
        """
        # There must be no await between the last `accept` and `close`, because a connection that
        # arrives in between would be reset.
        with contextlib.suppress(OSError):
            while len(self._places) < self.max_open:
                self._take(self._listening.accept()[0])
        self.close()

    async def wait_closed(self) -> None:
        """Wait until the last connection has ended."""
        await self._nothing_open.wait()

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            if len(self._places) >= self.max_open:
                self._pause()
                self._warn(f"{self.max_open} connections are open; new ones wait until one ends")
                return
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause()
                self._warn(f"no connection can be accepted for a moment: {error.strerror}")
                self._loop.call_later(RETRY_SECONDS, self.start)
                return
            self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        place = object()
        self._places.add(place)
        self._nothing_open.clear()
        self._work.start(self._connect(connection, lambda: self._ended(place)))

    async def _connect(self, connection: socket.socket, ended: Callable[[], None]) -> None:
        try:
            connection.setblocking(False)
            await self._loop.connect_accepted_socket(lambda: self._protocol(ended), connection)
        except OSError:
            LOG.debug("%s: a connection was lost at once", self._name)
            connection.close()
            ended()
        except BaseException:
            connection.close()
            ended()
            raise

    def _ended(self, place: object) -> None:
        self._places.discard(place)
        if not self._places:
            self._nothing_open.set()
        self.start()

    def _pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._listening)

    def _warn(self, text: str) -> None:
        now = time.monotonic()
        if now - self._warned_at >= WARNING_SECONDS:
            self._warned_at = now
            LOG.warning("%s: %s", self._name, text)


def stream_listener(
    listening: socket.socket, connected: Connected, *, max_open: int, name: str
) -> Listener:
    """Return a started listener that runs `connected` for each connection."""
    listener = Listener(
        listening, lambda ended: _Streams(connected, ended), max_open=max_open, name=name
    )
    listener.start()
    return listener


class _Streams(asyncio.StreamReaderProtocol):
    def __init__(self, connected: Connected, ended: Callable[[], None]) -> None:
        super().__init__(asyncio.StreamReader(), connected)
        self._on_end = ended

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._on_end()


def free_descriptors() -> int:
    """Return how many more files this process may open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return 1 << 20
    try:
        return max(0, limit - len(os.listdir("/dev/fd")))
    except OSError:
        return limit // DESCRIPTOR_SHARE
