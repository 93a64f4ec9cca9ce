"""What passes through pipes: bytes that wait until a pipe takes them, and bytes read as lines."""

import os
import select
from _collections import deque

from upwell.wrap.asking import Poll

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
