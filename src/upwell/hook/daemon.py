"""The process that answers hooks. There is one for each home, on a Unix socket that only its user
can open.

The first hook starts the daemon. The daemon holds a lock while it runs. It stops when it is told
to, when no request has arrived for a while, when its socket or its home is gone, or when a newer
upwell connects. A request is a line (`read_head()`), followed by the event.
"""

import asyncio
import contextlib
import fcntl
import os
import socket
from collections.abc import Mapping
from typing import Any, Protocol

import orjson
from msgspec import Struct, field

from upwell.ground.background import Receipt
from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreUnwritable
from upwell.ground.listener import Listener, stream_listener
from upwell.ground.trace import LOG
from upwell.hook.client import MAX_SENT_BYTES, PROTOCOL, TAKEN
from upwell.hook.place import DaemonPlace, is_private, socket_inode

READ_SECONDS = 2.0
LOOK_SECONDS = 2.0
FINISH_SECONDS = 1.0
RECEIPT_SECONDS = 5.0
"""How long to wait for a receipt. A running client acknowledges an answer within milliseconds, but
it may be suspended.
"""
PROTOCOLS = frozenset({"upwell/1", PROTOCOL})
"""The OpenCode plugin and the clients of upwell 0.1 use `upwell/1`, which has no receipts."""
MAX_HEAD_BYTES = 1_024
MAX_CONNECTIONS, BACKLOG = 64, 128
WRAP, MAX_RESULT_BYTES = "wrap", 40_000_000
"""The host in a request of a wrapped server's relay, and the most that such a request contains."""
CONTROL = "daemon"
"""The host in a request to the daemon itself. The event is then `status` or `stop`."""


class Service(Protocol):
    """The work behind the daemon's socket."""

    async def answer(self, request: "HookRequest", body: bytes, receipt: Receipt) -> bytes:
        """Return the answer to an event. `receipt` is settled once it is known whether the answer
        arrived."""
        ...

    def state(self) -> Mapping[str, Any]:
        """The service's part of `daemon status`."""
        ...


class HookRequest(Struct):
    """The first line of a request. `name` is the name of the host's event, `left_ms` is how
    many milliseconds the client will still wait, `parent` is the process that ran the client, and
    `length` is the number of bytes that follow."""

    protocol: str
    version: str
    host: str
    name: str
    left_ms: int
    parent: int
    length: int


class AlreadyRunning(Exception):
    """Another daemon for this home holds the lock."""


class Daemon(Struct):
    """Serves `service` at `place` until there is a reason to stop, such as `idle_seconds` without a
    request."""

    place: DaemonPlace
    service: Service
    version: str
    idle_seconds: float
    clock: Clock = SYSTEM_CLOCK
    _active_at: float = 0.0
    _connections: int = 0
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _inode: int = 0
    _lock: int = -1

    async def run(self) -> None:
        """Serve until there is a reason to stop. Raises AlreadyRunning if this home has a daemon,
        and StoreUnwritable if the socket folder is not private to this user."""
        self._lock = take_lock(self.place)
        try:
            listener = self._listen()
            self.touch()
            self._write_card()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.place.starting)
            try:
                await self._main_loop()
            finally:
                if socket_inode(self.place.socket) == self._inode:
                    for path in (self.place.socket, self.place.card):
                        with contextlib.suppress(OSError):
                            os.unlink(path)
                listener.close()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FINISH_SECONDS):
                        while self._connections:
                            await asyncio.sleep(0.01)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(self.place.lock)
            os.close(self._lock)

    def touch(self) -> None:
        """Restart the idle timer."""
        self._active_at = self.clock.monotonic()

    def stop(self) -> None:
        """Ask the daemon to stop. Open requests get `FINISH_SECONDS` to finish."""
        self._stop.set()

    def _listen(self) -> Listener:
        """Bind the socket under a temporary name and rename it, so that it is private from the
        start and replaces whatever is at its path.
        """
        fresh = f"{self.place.socket}.{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        umask = os.umask(0o177)
        try:
            listening.bind(fresh)
        finally:
            os.umask(umask)
        os.rename(fresh, self.place.socket)
        self._inode = socket_inode(self.place.socket)
        listening.listen(BACKLOG)
        return stream_listener(
            listening, self._connected, max_open=2 * MAX_CONNECTIONS, name="the daemon"
        )

    async def _main_loop(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), LOOK_SECONDS)
            if reason := self._reason_to_end():
                LOG.info("the daemon ends: %s", reason)
                return

    def _reason_to_end(self) -> str:
        if self._stop.is_set():
            return "it was stopped"
        if self._connections == 0 and self._idle() > self.idle_seconds:
            return "no events arrive"
        if socket_inode(self.place.socket) != self._inode:
            return "its socket is gone"
        return "" if os.path.isdir(self.place.home) else "its home is gone"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        receipt = Receipt()
        try:
            if self._connections <= MAX_CONNECTIONS:
                async with asyncio.timeout(READ_SECONDS):
                    request, body = await self._received(reader)
                answer = await self._answer(request, body, receipt)
                writer.write(b"ok %d\n" % len(answer) + answer)
                del answer, body  # they may be megabytes long
                await writer.drain()
                if receipt.is_awaited:
                    is_taken = request.protocol != PROTOCOL
                    if not is_taken:
                        async with asyncio.timeout(RECEIPT_SECONDS):
                            is_taken = await reader.read(len(TAKEN)) == TAKEN
                    receipt.settle(is_taken)
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            LOG.info("a hook's request was malformed, or its connection was lost")
        except Exception:
            LOG.exception("a hook's request failed")
        finally:
            receipt.settle(False)
            self._connections -= 1
            self.touch()
            writer.close()

    async def _received(self, reader: asyncio.StreamReader) -> tuple[HookRequest, bytes]:
        request = read_head(await reader.readuntil(b"\n"))
        most = MAX_RESULT_BYTES if request.host == WRAP else MAX_SENT_BYTES
        if not 0 <= request.length <= most:
            raise ValueError("too long")
        return request, await reader.readexactly(request.length)

    async def _answer(self, request: HookRequest, body: bytes, receipt: Receipt) -> bytes:
        if request.host == CONTROL:
            if request.name == "stop":
                self.stop()
            state = {"version": self.version, "idle_seconds": round(self._idle(), 1)}
            return orjson.dumps({**state, **self.service.state()})
        if newer(request.version, self.version):
            LOG.info(
                "a hook of upwell %s connected; this daemon, of %s, ends",
                request.version,
                self.version,
            )
            self.stop()
        return await self.service.answer(request, body, receipt)

    def _idle(self) -> float:
        return self.clock.monotonic() - self._active_at

    def _write_card(self) -> None:
        card = {
            "pid": os.getpid(),
            "home": self.place.home,
            "version": self.version,
            "started_at": self.clock.now(),
        }
        fresh = f"{self.place.card}.{os.getpid()}"
        flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
            file.write(orjson.dumps(card))
        os.rename(fresh, self.place.card)


def take_lock(place: DaemonPlace) -> int:
    """Take the lock that only one daemon for this home can hold. Returns the descriptor of the lock
    file, which releases the lock when it is closed. Raises AlreadyRunning if another process holds
    it, and StoreUnwritable if the folder is not private to this user."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(place.folder, 0o700)
    if not is_private(place.folder):
        raise StoreUnwritable(
            f"{place.folder} is not private: it belongs to, or is open to, another user",
            hint="remove it; if it is yours, `chmod 700` is enough",
        )
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(place.lock, flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise AlreadyRunning(place.home) from error
    if not _is_at(lock, place.lock):
        os.close(lock)
        return take_lock(place)
    return lock


def _is_at(descriptor: int, path: str) -> bool:
    """The previous daemon may just have removed the open file."""
    try:
        return os.fstat(descriptor).st_ino == os.lstat(path).st_ino
    except FileNotFoundError:
        return False


def read_head(line: bytes) -> HookRequest:
    """Parse `upwell/2 VERSION HOST EVENT LEFT_MS PARENT LENGTH`; any other form is a ValueError."""
    if len(line) > MAX_HEAD_BYTES:
        raise ValueError("too long")
    protocol, version, host, name, left_ms, parent, length = line.decode("ascii").split()
    if protocol not in PROTOCOLS:
        raise ValueError(f"unknown protocol {protocol}")
    return HookRequest(protocol, version, host, name, int(left_ms), int(parent), int(length))


def newer(version: str, other: str) -> bool:
    return _numbers(version) > _numbers(other)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]
