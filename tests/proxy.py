"""A TCP proxy on loopback that adds delay, and can be cut, silenced and half-closed."""

import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress


class Proxy:
    """Forwards connections to `port`. Every byte waits `delay` seconds in each direction, so that a
    round trip takes twice as long; bytes wait at the same time, as they do on a long line."""

    def __init__(self, port: int, delay: float = 0.0) -> None:
        self.delay = delay
        self.round_trips = 0
        """The number of times that the client sent something after the server had."""
        self._target = port
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._is_silent = False
        self._is_cut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._start(self._accept)

    def url(self, direct: str) -> str:
        """The address of a database through this proxy."""
        head, _, database = direct.rpartition("/")
        return f"{head.rpartition(':')[0]}:{self.port}/{database}"

    def cut(self) -> None:
        """End every connection, and refuse new ones, until `mend`."""
        self._is_cut = True
        for pair in self._pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def silence(self) -> None:
        """From now on, drop everything silently, as a network without a route does."""
        self._is_silent = True

    def half_close(self) -> None:
        """End only the direction from the server to the client."""
        for client, _ in self._pairs:
            with suppress(OSError):
                client.shutdown(socket.SHUT_WR)

    def mend(self) -> None:
        """Forward new connections again. If the proxy was silent, this ends the old ones."""
        if self._is_silent:
            self.cut()
        self._is_silent = self._is_cut = False

    def close(self) -> None:
        """End everything, and leave no socket open in the process of the tests."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join(10)
        for end in (self._listener, *(end for pair in self._pairs for end in pair)):
            end.close()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_cut:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target), timeout=10)
            except OSError:
                client.close()
                continue
            pair = (client, server)
            for end in pair:
                end.settimeout(None)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs.append(pair)
            turn = {"is_clients": False}
            for source, sink, is_client in ((client, server, True), (server, client, False)):
                self._start(self._forward, source, sink, is_client, turn)

    def _forward(
        self, source: socket.socket, sink: socket.socket, is_client: bool, turn: dict[str, bool]
    ) -> None:
        waiting: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        self._start(self._deliver, waiting, sink)
        chunk = b"-"
        while chunk:
            try:
                chunk = source.recv(65_536)
            except OSError:
                chunk = b""
            self.round_trips += bool(is_client and chunk and not turn["is_clients"])
            turn["is_clients"] = is_client
            waiting.put((time.monotonic() + self.delay, chunk))

    def _deliver(
        self, waiting: "queue.SimpleQueue[tuple[float, bytes]]", sink: socket.socket
    ) -> None:
        chunk = b"-"
        while chunk:
            due, chunk = waiting.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if self._is_silent:
                continue
            try:
                if chunk:
                    sink.sendall(chunk)
                else:
                    sink.shutdown(socket.SHUT_WR)
            except OSError:
                return
