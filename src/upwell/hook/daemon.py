"""The warm process behind hooks: one for each home, on a Unix socket that only its user can open.

Read `Daemon.run`: startup, main loop, shutdown. It is started by the first hook, holds a lock as
long as it lives, and ends by itself: when nobody asks any more, when its socket or home is gone, or
when a newer upwell asks. A request is one line and the event; see `client._ask`.
"""

import asyncio
import contextlib
import fcntl
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from upwell.ground.errors import StoreUnwritable
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.trace import LOG
from upwell.hook import loopback
from upwell.hook.client import MAX_SENT_BYTES
from upwell.hook.place import Place, door_at, is_private, over_tcp

READ_SECONDS = 2.0
LOOK_SECONDS = 2.0
FINISH_SECONDS = 1.0
MAX_HEAD_BYTES = 1_024
MAX_CONNECTIONS = 64
CONTROL = "daemon"
"""The name in place of a host's that asks the daemon itself: `status`, `stop`."""


class Work(Protocol):
    """What the daemon runs."""

    async def answer(
        self, host: str, name: str, body: bytes, *, left_ms: int | None = None, parent: int = 0
    ) -> bytes:
        """The answer to an event of a host."""
        ...

    async def refresh(self) -> None:
        """Called every two seconds: takes up what was changed."""
        ...

    def state(self) -> Mapping[str, Any]:
        """What `daemon status` shows of it."""
        ...


@dataclass(slots=True)
class Request:
    """The first line of a request."""

    version: str
    host: str
    name: str
    left_ms: int
    parent: int
    length: int


class AlreadyRunning(Exception):
    """Another daemon of this home holds the lock."""


@dataclass(slots=True)
class Daemon:
    """Serves `work` at `place` until it has been idle for `idle_seconds`."""

    place: Place
    work: Work
    version: str
    idle_seconds: float
    clock: Clock = SYSTEM_CLOCK
    _asked_at: float = 0.0
    _open: int = 0
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _inode: int = 0
    _token: str = ""
    _lock: int = -1

    async def run(self, beside: Callable[[], Awaitable[None]] | None = None) -> None:
        """Serve until there is a reason to end. `beside` is run once the socket is open.

        Raises:
            AlreadyRunning: there is a daemon of this home.
            StoreUnwritable: the folder of sockets is not ours.
        """
        self._lock = take_lock(self.place)
        try:
            server = await self._listen()
            self._asked_at = self.clock.monotonic()
            self._write_card()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.place.starting)
            try:
                if beside is not None:
                    await beside()
                await self._main_loop()
            finally:
                self._clear()
                server.close()
                await self._finished()
        finally:
            with contextlib.suppress(OSError):
                os.unlink(self.place.lock)
            os.close(self._lock)

    def asked(self) -> None:
        """Somebody asked its work by another way: it is not idle."""
        self._asked_at = self.clock.monotonic()

    def stop(self) -> None:
        """End after what is being answered."""
        self._stop.set()

    async def _listen(self) -> asyncio.Server:
        """Bind to a name of its own first, so that the socket is private from its first moment, and
        what stands at its path (a socket left behind, a file) is replaced."""
        fresh = f"{self.place.socket}.{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
        if over_tcp():
            server, self._token = await loopback.listen(self._connected, fresh)
            self._put(fresh)
            return server
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listening.bind(fresh)
        finally:
            os.umask(before)
        self._put(fresh)
        listening.setblocking(False)
        return await asyncio.start_unix_server(self._connected, sock=listening, backlog=128)

    def _put(self, fresh: str) -> None:
        """What is met by clients, at its place."""
        os.rename(fresh, self.place.socket)
        self._inode = door_at(self.place.socket)

    async def _main_loop(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), LOOK_SECONDS)
            if why := self._reason_to_end():
                LOG.info("the daemon ends: %s", why)
                return
            try:
                await self.work.refresh()
            except Exception:
                LOG.exception("the daemon goes on as it is")

    async def _finished(self) -> None:
        """Give what is being answered a moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                while self._open:
                    await asyncio.sleep(0.01)

    def _reason_to_end(self) -> str:
        if self._stop.is_set():
            return "it was told to"
        if self._open == 0 and self.clock.monotonic() - self._asked_at > self.idle_seconds:
            return "nobody asks"
        if door_at(self.place.socket) != self._inode:
            return "its socket is gone"
        return "" if os.path.isdir(self.place.home) else "its home is gone"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= MAX_CONNECTIONS:
                async with asyncio.timeout(READ_SECONDS):
                    if self._token:
                        await loopback.admit(self._token, reader, writer)
                    request, body = await self._received(reader)
                writer.write(_framed(await self._answered(request, body)))
                await writer.drain()
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            LOG.info("a hook's question was not understood, or it went away")
        except Exception:
            LOG.exception("a hook was not answered")
        finally:
            self._open -= 1
            self._asked_at = self.clock.monotonic()
            writer.close()

    async def _received(self, reader: asyncio.StreamReader) -> tuple[Request, bytes]:
        request = read_head(await reader.readuntil(b"\n"))
        if not 0 <= request.length <= MAX_SENT_BYTES:
            raise ValueError("too long")
        return request, await reader.readexactly(request.length)

    async def _answered(self, request: Request, body: bytes) -> bytes:
        if request.host == CONTROL:
            return self._controlled(request.name)
        if newer(request.version, self.version):
            LOG.info("upwell %s asks: this daemon is %s", request.version, self.version)
            self.stop()
        return await self.work.answer(
            request.host, request.name, body, left_ms=request.left_ms, parent=request.parent
        )

    def _controlled(self, what: str) -> bytes:
        if what == "stop":
            self.stop()
        state = {"version": self.version, "idle_seconds": round(self._idle(), 1)}
        return orjson.dumps({**state, **self.work.state()})

    def _idle(self) -> float:
        return self.clock.monotonic() - self._asked_at

    def _write_card(self) -> None:
        card = {"pid": os.getpid(), "home": self.place.home, "version": self.version}
        card["started_at"] = self.clock.now()
        fresh = f"{self.place.card}.{os.getpid()}"
        flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
            file.write(orjson.dumps(card))
        os.rename(fresh, self.place.card)

    def _clear(self) -> None:
        """Take away what is ours, and only that."""
        if door_at(self.place.socket) == self._inode:
            for path in (self.place.socket, self.place.card):
                with contextlib.suppress(OSError):
                    os.unlink(path)


def take_lock(place: Place) -> int:
    """The lock of this home's daemon, as an open file.

    Raises:
        AlreadyRunning: somebody holds it.
        StoreUnwritable: the folder is not ours alone.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(place.folder, 0o700)
    if not is_private(place.folder):
        raise StoreUnwritable(
            f"{place.folder} is not a private folder of yours",
            hint="somebody else made it, or opened it: remove it, or `chmod 700` it",
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
    """Is the open file still the one at `path`? The daemon before us may just have removed it."""
    try:
        return os.fstat(descriptor).st_ino == os.lstat(path).st_ino
    except FileNotFoundError:
        return False


def read_head(line: bytes) -> Request:
    """`upwell/1 VERSION HOST EVENT LEFT_MS PARENT LENGTH`.

    Raises:
        ValueError: it is anything else.
    """
    if len(line) > MAX_HEAD_BYTES:
        raise ValueError("too long")
    mark, version, host, name, left_ms, parent, length = line.decode("ascii").split()
    if mark != "upwell/1":
        raise ValueError(f"{mark} is not spoken here")
    return Request(version, host, name, int(left_ms), int(parent), int(length))


def newer(one: str, other: str) -> bool:
    """Is version `one` above `other`?"""
    return _numbers(one) > _numbers(other)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]


def _framed(body: bytes) -> bytes:
    return b"ok %d\n" % len(body) + body
