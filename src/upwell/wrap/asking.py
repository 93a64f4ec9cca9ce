"""Requests of the relay to the daemon, without waiting for it.

A request has the form of a hook's (`hook/client.py`). The relay's loop sends it and reads the reply
as the socket permits. Nothing here raises: without a daemon, or with one that is late, there is no
answer.
"""

import _socket
import os
import select
import time
from _json import encode_basestring_ascii as quoted

from upwell import __version__
from upwell.hook.client import MAX_HEAD_BYTES, PROTOCOL, TAKEN
from upwell.hook.place import DaemonPlace, is_private, socket_inode, start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Concluded = Callable[["Ask", bytes | None], None]

HOST = "wrap"
TOOLS = "tools"
"""The host in a request of `upwell serve --tools`."""
CALL, LIST = "call", "list"
"""What a request is about: a result of a call, or the `outputSchema`s in a list of tools."""
OF_PLUGIN = "plugin"
"""The name of a server with upwell's own tools that an agent's plugin has started."""
SAME, NEW = b"same", b"new\n"
"""The answers: the message stays as it is, or what follows replaces it. That is a line with its end
or, if the question was about a list, a JSON array of the tools that keep their schema."""
MARGIN_SECONDS = 0.02
"""The daemon's deadline is this much earlier, so that its answer arrives in time."""
READ_BYTES = 262_144


def identity(session: str, name: str = "", command: "Sequence[str]" = ()) -> str:
    """The constant members of a line that describes this process to the daemon (`Relay`)."""
    try:
        folder = os.getcwd()
    except OSError:
        folder = ""
    return (
        f'"session":{quoted(f"{session}-{os.urandom(6).hex()}")},"name":{quoted(name)},'
        f'"cwd":{quoted(folder)},"command":[{",".join(map(quoted, command))}]'
    )


def description(identity: str, client: str) -> bytes:
    """The line that describes this process. `client` is the agent's name for itself."""
    return f'{{{identity},"client":{quoted(client)}}}'.encode()


def start_daemon(place: DaemonPlace) -> None:
    """Start the daemon, unless one is starting. It must not be a child of this process, because
    agents end all descendants of their servers."""
    try:
        child = os.fork()
    except OSError:
        return
    if child == 0:
        try:
            start(place)
        finally:
            os._exit(0)


class Poll:
    """The file descriptors that the loop waits for, and what it calls for each."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._calls: dict[int, Callable[[int], None]] = {}

    def watch(self, fd: int, events: int, call: "Callable[[int], None]") -> None:
        self._poll.register(fd, events)
        self._calls[fd] = call

    def forget(self, fd: int) -> None:
        if self._calls.pop(fd, None):
            self._poll.unregister(fd)

    def wait(self, seconds: float | None) -> None:
        for fd, events in self._poll.poll(None if seconds is None else seconds * 1000 + 1):
            if call := self._calls.get(fd):
                call(events)


class Ask:
    """One request. `concluded(ask, answer)` is called once, later; the answer is None if there is
    none. `is_refused` tells that nobody listens."""

    def __init__(
        self, poll: Poll, what: str, parent: int, parts: list[bytes], seconds: float
    ) -> None:
        self._poll = poll
        self._seconds = seconds
        self.deadline = time.monotonic() + seconds
        length = sum(map(len, parts))
        left_ms = max(1, int((seconds - MARGIN_SECONDS) * 1000))
        words = (PROTOCOL, __version__, HOST, what, str(left_ms), str(parent), str(length))
        head = " ".join(words).encode() + b"\n"
        self._unsent: list[bytes | memoryview] = [part for part in (head, *parts) if part]
        self._reply = b""
        self._socket: _socket.socket | None = None
        self._concluded: Concluded | None = None
        self.is_refused = False
        self.is_late = False

    def begin(self, place: DaemonPlace, concluded: "Concluded") -> None:
        """Connect and send. May conclude before it returns."""
        self._concluded = concluded
        if not is_private(place.folder) or not socket_inode(place.socket):
            self.is_refused = True
            return self._conclude(None)
        peer = self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            peer.setblocking(False)
            peer.connect(place.socket)
        except OSError as error:
            self.is_refused = not isinstance(error, BlockingIOError)
            return self._conclude(None)
        self._send()

    def give_up(self) -> None:
        self.is_late = True
        self._conclude(None)

    def settle(self, delivered: bool) -> None:
        peer, self._socket = self._socket, None
        if peer is None:
            return
        try:
            if delivered:
                peer.send(TAKEN)
        except OSError:
            pass
        peer.close()

    def _send(self, _: int = 0) -> None:
        peer = self._socket
        assert peer is not None
        try:
            while self._unsent:
                part = self._unsent[0]
                sent = peer.send(part)
                if sent == len(part):
                    del self._unsent[0]
                else:
                    self._unsent[0] = memoryview(part)[sent:]
        except BlockingIOError:
            return self._poll.watch(peer.fileno(), select.POLLOUT, self._send)
        except OSError:
            return self._conclude(None)
        self._poll.watch(peer.fileno(), select.POLLIN, self._read)

    def _read(self, _: int) -> None:
        assert self._socket is not None
        try:
            chunk = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        self._reply += chunk
        head, is_complete, body = self._reply.partition(b"\n")
        if not chunk or (not is_complete and len(head) > MAX_HEAD_BYTES):
            return self._conclude(None)
        if not is_complete:
            return
        status, length = head.partition(b" ")[::2]
        if status != b"ok" or not length.isdigit() or len(body) > int(length):
            self._conclude(None)
        elif len(body) == int(length):
            self._conclude(body)

    def _conclude(self, answer: bytes | None) -> None:
        concluded, self._concluded = self._concluded, None
        if self._socket is not None:
            self._poll.forget(self._socket.fileno())
        self._unsent, self._reply = [], b""
        if answer is None:
            self.settle(False)
        if concluded is not None:
            concluded(self, answer)
