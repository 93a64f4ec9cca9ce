"""The relay between an agent and one MCP server: `upwell wrap -- COMMAND`.

Bytes pass both ways as they arrive. Of what the server sends, only the results of the agent's tool
calls are kept back for a moment: the daemon may shorten them, or add memories. Later messages do
not wait for them. Without a daemon, or if it is late, a result passes as it is. Tools whose results
may be shortened are listed without their `outputSchema` (docs/decisions.md).

An agent runs one relay for each of its servers, so this imports only the cheap part of the stdlib.
"""

import _signal
import os
import select
import time
from _collections import deque
from _json import encode_basestring_ascii as quoted

from upwell.hook.place import DaemonPlace, socket_inode
from upwell.wrap.asking import (
    CALL,
    LIST,
    NEW,
    Ask,
    Poll,
    description,
    identity,
    start_daemon,
)
from upwell.wrap.child import WrappedServer
from upwell.wrap.messages import (
    CALLED,
    END_BYTES,
    HELLO,
    LISTED,
    ListedTool,
    Malformed,
    ToolList,
    member,
    outline,
    parsed,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from upwell.wrap.asking import Concluded

    Written = Callable[[bool], None]


class Outlet:
    """The writing end of a pipe. Writes bytes in order, as the pipe takes them. `size` is how many
    bytes wait. Once nobody reads the pipe, `is_open` is False and bytes are dropped. If the pipe is
    our stderr as well, a write waits, because the server writes there, too."""

    def __init__(self, poll: Poll, fd: int) -> None:
        self._poll = poll
        self._fd = fd
        self._queue: deque[tuple[memoryview | bytes, Written | None]] = deque()
        self._is_ending = False
        self._was_blocking = os.get_blocking(fd)
        self.is_open = True
        self.size = 0
        if not _is_stderr(fd):
            os.set_blocking(fd, False)

    def write(self, data: bytes, written: "Written | None" = None) -> None:
        """Write `data`, now or later. `written` is told whether all of it was written."""
        self._queue.append((data, written))
        self.size += len(data)
        if len(self._queue) == 1 or not self.is_open:
            self._flush()

    def end(self) -> None:
        """Close the pipe once everything has been written."""
        self._is_ending = True
        self._flush()

    def restore(self) -> None:
        """Let others who use the same pipe wait for it, as before."""
        if self.is_open and self._was_blocking:
            os.set_blocking(self._fd, True)

    def _flush(self, events: int = 0) -> None:
        if events & (select.POLLERR | select.POLLNVAL):
            return self._close()
        while self._queue and self.is_open:
            data, written = self._queue[0]
            try:
                count = os.write(self._fd, data)
            except BlockingIOError:
                return self._poll.watch(self._fd, select.POLLOUT, self._flush)
            except OSError:
                return self._close()
            self.size -= count
            if count < len(data):
                self._queue[0] = (memoryview(data)[count:], written)
                continue
            self._queue.popleft()
            if written is not None:
                written(True)
        self._poll.forget(self._fd)
        if self._is_ending or not self.is_open:
            self._close()

    def _close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._poll.forget(self._fd)
            # Not `close()`, because the next file that is opened would get a standard number.
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, self._fd, False)
            os.close(nowhere)
        queue, self._queue, self.size = self._queue, deque(), 0
        for _, written in queue:
            if written is not None:
                written(False)


def _is_stderr(fd: int) -> bool:
    try:
        return os.path.sameopenfile(fd, 2)
    except OSError:
        return False


class Lines:
    """The lines in chunks of bytes, as lists of pieces. Long lines are not put together, and those
    of more than `max_bytes` are not kept."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: list[bytes] = []
        self._size = 0
        self.is_passing = False
        """Whether a line has been yielded in part."""

    def of(self, chunk: bytes, *, keeps: bool) -> "Iterator[tuple[list[bytes], bool]]":
        """Yield pieces, and whether they are one whole line. Without `keeps`, the pieces of a new
        line are yielded as they arrive."""
        if not keeps and not self._kept:
            self.is_passing = not chunk.endswith(b"\n")
            yield [chunk], False
            return
        at, end = 0, chunk.find(b"\n") + 1
        while end:
            yield self._ended(chunk[at:end])
            at, end = end, chunk.find(b"\n", end) + 1
        if at == len(chunk):
            return
        self._kept.append(chunk[at:])
        self._size += len(chunk) - at
        if self.is_passing or self._size > self._max_bytes:
            self.is_passing = True
            yield self.rest(), False

    def rest(self) -> list[bytes]:
        """Return the pieces of the unfinished line, and forget them."""
        kept, self._kept, self._size = self._kept, [], 0
        return kept

    def _ended(self, piece: bytes) -> tuple[list[bytes], bool]:
        was_passing, self.is_passing = self.is_passing, False
        return [*self.rest(), piece], not was_passing


READ_BYTES = 262_144
MAX_WAITING_BYTES = 1_000_000
"""While more bytes than this wait for a reader, nothing more is read from the other side."""
MAX_REQUEST_BYTES = 250_000
MAX_RESULT_BYTES = 32_000_000
"""The result of a larger request, and a larger result, pass as they are."""
MAX_REQUESTS = 256
"""Of more unanswered requests than this, the oldest are forgotten: their results pass as they
are."""
SMALL_BYTES = 4_096
"""A result up to this size is not shortened. It may only get memories."""
SMALL_SECONDS = 0.3
LARGE_SECONDS, MEGABYTE_SECONDS, MAX_SECONDS = 1.0, 2.0, 10.0
"""How long a result waits for the daemon at most: a small one, and a large one by its size."""
MAX_LATE, QUIET_SECONDS = 3, 30.0
"""After so many answers in a row that came too late, the daemon is not asked for a while."""
START_AGAIN_SECONDS = 15.0
GRACE_SECONDS = 5.0
"""How long the server may run after the agent has closed its stdin, and again after SIGTERM."""
LAST_WORDS_SECONDS = 0.3
"""When the server has ended, another process may hold its stdout open. If nothing arrives for this
long, the output counts as complete."""
FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


class AgentRequest:
    """A request that the server has not answered: a call of a tool or, without a tool, for the list
    of tools."""

    __slots__ = ("line", "tool")

    def __init__(self, tool: str | None, line: bytes) -> None:
        self.tool = tool
        self.line = line


class Relay:
    """`name`, or else `command`, identifies the server, and `place` is that of the daemon."""

    def __init__(
        self, server: WrappedServer, place: DaemonPlace, name: str, command: list[str]
    ) -> None:
        self._server = server
        self._place = place
        self._parent = os.getppid()
        self._identity = identity("wrap", name, command)
        self._client = ""
        self._poll = Poll()
        self._to_server = Outlet(self._poll, server.stdin)
        self._to_client = Outlet(self._poll, 1)
        self._client_is_open = self._server_is_open = True
        self._request = Lines(MAX_REQUEST_BYTES)
        self._response = Lines(MAX_RESULT_BYTES)
        self._agent_requests: dict[str, AgentRequest] = {}
        self._tools: dict[str, ListedTool] = {}
        self._asks: set[Ask] = set()
        self._late_lines: list[tuple[list[bytes], Written | None]] = []
        self._late_answers = 0
        self._quiet_until = self._start_after = 0.0
        self._heard_at = 0.0
        self._next_step_at: float | None = None
        self._steps = [_signal.SIGTERM, _signal.SIGKILL]
        self._is_told_to_end = False

    def run(self) -> int:
        self._listen_for_signals()
        while (status := self._final_status()) is None:
            self._pace()
            self._poll.wait(self._seconds_to_wait())
            self._act_on_time()
        self._to_client.restore()
        return status

    # The two directions

    def _pace(self) -> None:
        for fd, is_open, outlet, read in (
            (0, self._client_is_open, self._to_server, self._read_client),
            (self._server.stdout, self._server_is_open, self._to_client, self._read_server),
        ):
            if is_open and outlet.size < MAX_WAITING_BYTES:
                self._poll.watch(fd, select.POLLIN, read)
            else:
                self._poll.forget(fd)
        if not self._to_server.is_open:
            self._close_client()
        if self._server_is_open and not self._to_client.is_open:
            self._end_output()

    def _read_client(self, _: int) -> None:
        chunk = _read(0)
        if not chunk:
            self._close_client()
            self._to_server.end()
            self._next_step_at = time.monotonic() + GRACE_SECONDS
            return
        self._to_server.write(chunk)
        for line, is_whole in self._request.of(chunk, keeps=True):
            if is_whole:
                self._note_request(b"".join(line))

    def _read_server(self, _: int) -> None:
        chunk = _read(self._server.stdout)
        self._heard_at = time.monotonic()
        if not chunk:
            return self._end_output()
        # A message that waits for the daemon must not be written into the middle of another one.
        keeps = bool(self._agent_requests or self._asks)
        for line, is_whole in self._response.of(chunk, keeps=keeps):
            if not is_whole or not self._take_response(line):
                self._pass(line)
            if not self._response.is_passing:
                self._pass_late()

    def _end_output(self) -> None:
        self._server_is_open = False
        self._poll.forget(self._server.stdout)
        os.close(self._server.stdout)

    def _pass(self, line: list[bytes]) -> None:
        for chunk in line:
            self._to_client.write(chunk)

    def _pass_later(self, line: list[bytes], written: "Written | None" = None) -> None:
        """Pass a message on that was kept back, at the next end of a line."""
        self._late_lines.append((line, written))
        if not self._response.is_passing:
            self._pass_late()

    def _pass_late(self) -> None:
        while self._late_lines:
            line, written = self._late_lines.pop(0)
            self._pass(line[:-1])
            self._to_client.write(line[-1], written)

    def _close_client(self) -> None:
        if self._client_is_open:
            self._client_is_open = False
            self._poll.forget(0)
            nowhere = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nowhere, 0, False)
            os.close(nowhere)

    # Messages

    def _note_request(self, line: bytes) -> None:
        if b"tools" not in line and b"initialize" not in line:
            return
        found = outline(line[:END_BYTES], line[-END_BYTES:])
        method, identity = found.get("method", "").replace("\\/", "/"), found.get("id", "")
        if method == HELLO:
            self._client = member(_value(line), "params", "clientInfo", "name")
        elif method in (CALLED, LISTED) and identity:
            if len(self._agent_requests) >= MAX_REQUESTS:
                del self._agent_requests[next(iter(self._agent_requests))]
            tool = member(_value(line), "params", "name") if method == CALLED else None
            self._agent_requests[identity] = AgentRequest(tool, line.strip())

    def _take_response(self, line: list[bytes]) -> bool:
        """Keep a message back, if it is a result that may need work. Returns whether it was taken;
        it is then passed on later."""
        tail = line[-1] if len(line[-1]) >= END_BYTES else b"".join(line[-2:])
        found = outline(line[0][:END_BYTES], tail[-END_BYTES:])
        if "method" in found or ("result" not in found and "error" not in found):
            return False
        asked = self._agent_requests.pop(found.get("id", ""), None)
        if asked is None or found.get("result") != "{":
            return False
        if asked.tool is None:
            return self._take_list(line)
        return self._ask_about(asked.line, self._tools.get(asked.tool) or ListedTool(), line)

    def _ask_about(self, request: bytes, tool: ListedTool, line: list[bytes]) -> bool:
        size = sum(map(len, line))
        if time.monotonic() < self._quiet_until or (size <= SMALL_BYTES and tool.writes):
            return False
        seconds = SMALL_SECONDS
        if size > SMALL_BYTES:
            seconds = min(MAX_SECONDS, LARGE_SECONDS + size / 1e6 * MEGABYTE_SECONDS)
        head = [self._context(), tool.facts(), request]
        parts = [b"\n".join([*head, b""]), *line]

        def conclude(ask: Ask, answer: bytes | None) -> None:
            self._conclude(ask)
            if answer is None or not answer.startswith(NEW):
                ask.settle(False)
                self._pass_later(line)
            else:
                self._pass_later([answer[len(NEW) :]], ask.settle)

        return self._begin(Ask(self._poll, CALL, self._parent, parts, seconds), conclude)

    def _take_list(self, line: list[bytes]) -> bool:
        """Note the tools, and list those whose results may be shortened without their
        `outputSchema`. The daemon knows which these are. Without it, they are all."""
        try:
            listed = ToolList(b"".join(line))
        except Malformed:
            return False
        self._tools.update(listed.tools)
        names = {name for name, tool in listed.tools.items() if tool.schema}
        if not names:
            self._start_daemon()
            return False
        question = "[" + ",".join(map(quoted, sorted(names))) + "]"

        def conclude(ask: Ask, answer: bytes | None) -> None:
            self._conclude(ask)
            ask.settle(False)
            kept = parsed(answer[len(NEW) :].decode(errors="replace")) if answer else None
            whole = kept if isinstance(kept, list) else []
            shortened = {name for name in names if name not in whole}
            self._pass_later([listed.without_schemas(shortened)])
            self._start_daemon()

        parts = [self._context(), b"\n", question.encode()]
        return self._begin(Ask(self._poll, LIST, self._parent, parts, SMALL_SECONDS), conclude)

    # The daemon

    def _context(self) -> bytes:
        return description(self._identity, self._client)

    def _begin(self, ask: Ask, conclude: "Concluded") -> bool:
        self._asks.add(ask)
        ask.begin(self._place, conclude)
        return True

    def _conclude(self, ask: Ask) -> None:
        self._asks.discard(ask)
        self._late_answers = self._late_answers + 1 if ask.is_late else 0
        if self._late_answers >= MAX_LATE:
            self._late_answers, self._quiet_until = 0, time.monotonic() + QUIET_SECONDS
        if ask.is_refused:
            self._start_daemon(is_gone=True)

    def _start_daemon(self, *, is_gone: bool = False) -> None:
        """Start the daemon if there is none. The agent waits for its tools first, so this is not
        done before they are listed."""
        now = time.monotonic()
        if now < self._start_after or (not is_gone and socket_inode(self._place.socket)):
            return
        self._start_after = now + START_AGAIN_SECONDS
        start_daemon(self._place)

    # Time and signals

    def _seconds_to_wait(self) -> float | None:
        times = [ask.deadline for ask in self._asks]
        if self._next_step_at is not None:
            times.append(self._next_step_at)
        if self._server.wait_status is not None and self._server_is_open:
            times.append(self._heard_at + LAST_WORDS_SECONDS)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _act_on_time(self) -> None:
        now = time.monotonic()
        for ask in [ask for ask in self._asks if ask.deadline <= now]:
            ask.give_up()
        has_ended = self._server.wait_status is not None
        if has_ended and self._server_is_open and now >= self._heard_at + LAST_WORDS_SECONDS:
            self._end_output()
        if not self._server_is_open and not self._asks:
            self._pass(self._response.rest())
            if self._late_lines:
                self._to_client.write(b"\n")
            self._pass_late()
            self._to_client.end()
        if self._next_step_at is not None and now >= self._next_step_at:
            self._next_step_at = now + GRACE_SECONDS
            if self._steps:
                self._server.signal(self._steps.pop(0))
            self._is_told_to_end = has_ended

    def _final_status(self) -> int | None:
        status = self._server.wait_status
        is_done = not (self._server_is_open or self._asks or self._to_client.size)
        return status if is_done or self._is_told_to_end else None

    def _listen_for_signals(self) -> None:
        self._wake, theirs = os.pipe()
        os.set_blocking(theirs, False)
        _signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda number, frame: None)
        for name in FORWARDED:
            number = getattr(_signal, name)
            if _signal.getsignal(number) != _signal.SIG_IGN:
                _signal.signal(number, lambda number, frame: None)
        self._poll.watch(self._wake, select.POLLIN, self._heed_signals)
        self._note_end()

    def _heed_signals(self, _: int) -> None:
        for number in os.read(self._wake, 64):
            if number == _signal.SIGCHLD:
                self._note_end()
            else:
                self._is_told_to_end = self._server.wait_status is not None
                self._server.signal(number)

    def _note_end(self) -> None:
        has_ended = self._server.wait_status is not None
        self._server.reap()
        if not has_ended and self._server.wait_status is not None:
            self._heard_at = time.monotonic()


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, READ_BYTES)
    except OSError:
        return b""


def _value(line: bytes) -> object:
    return parsed(line.decode(errors="replace"))
