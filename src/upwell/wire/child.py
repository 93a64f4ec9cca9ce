"""A child process that speaks on stdin and stdout, and dies with us.

Its environment is an allow-list plus what the user gave it; it gets its own process group, a
parent-death signal where the system has one and a watcher for what it starts itself, and a tail of
its stderr is kept for error messages.
"""

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from upwell.ground.trace import LOG
from upwell.wire.lines import PipeSink
from upwell.wire.watcher import WATCHER

ALLOWED_ENVIRONMENT = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
"""What a program needs to run at all, and to reach the network as everything else here does."""
_TAIL_LINES = 20
_TAIL_CHARS = 2000
_READ_BYTES = 256 * 1024
_PR_SET_PDEATHSIG = 1
LAST_WORDS_SECONDS = 0.3
"""So long its output may still be read after its end, while nothing comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to run: an argument list, never a shell line. `tied`: have it end with us, and what it
    started; that makes starting it slower, and a child that ends when its stdin closes and starts
    nothing does not need it."""

    program: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    tied: bool = True


class CannotStart(OSError):
    """The program is not there, or may not be run."""


class _Streams(asyncio.subprocess.SubprocessStreamProtocol):
    """Tells when the process ended. asyncio's own `wait` waits for its pipes as well, which a
    process that it started may hold open."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=_READ_BYTES, loop=loop)
        self.ended = asyncio.Event()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """asyncio tells who waits for the pipe to close, also one who has given that up."""
        with contextlib.suppress(asyncio.InvalidStateError):
            super().pipe_connection_lost(fd, exc)

    def process_exited(self) -> None:
        super().process_exited()
        self.ended.set()


class Child:
    """A running child. `out` gives its stdout, `sink` takes its stdin. To be read until its end, it
    is a `Source` itself."""

    locked_out = False

    def __init__(self, transport: asyncio.SubprocessTransport, streams: _Streams) -> None:
        loop = asyncio.get_running_loop()
        process = asyncio.subprocess.Process(transport, streams, loop)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._transport = transport
        self._process = process
        self._ended = streams.ended
        self._idle_since: float | None = None
        self.out = process.stdout
        self.sink = PipeSink(process.stdin)
        self._stderr: deque[str] = deque(maxlen=_TAIL_LINES)
        self._drain = asyncio.create_task(self._keep_tail(process.stderr))
        self._watch = asyncio.create_task(self._end_output())

    @property
    def pid(self) -> int:
        return self._process.pid

    async def read(self, most: int) -> bytes:
        """What it says next on stdout, `b""` at its end, even where somebody holds the pipe."""
        self._idle_since = asyncio.get_running_loop().time()
        try:
            return await self.out.read(most)
        except EOFError:
            return b""
        finally:
            self._idle_since = None

    async def obituary(self, patience_seconds: float = 0.5) -> str:
        """How it ended and what it said last, for an error message."""
        await _at_most(patience_seconds, self._ended.wait())
        code = self._process.returncode
        if code is None:
            return "it closed its output but is still running" + self._said()
        await asyncio.wait([self._drain], timeout=patience_seconds)
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        return f"it ended with {how}" + self._said()

    async def stop(self, grace_seconds: float = 2.0) -> None:
        """Close its stdin, then ask, then insist. Its whole process group goes."""
        await self.sink.aclose()
        for insist in (None, signal.SIGTERM, signal.SIGKILL):
            if insist is not None:
                self._signal(insist)
            if await _at_most(grace_seconds, self._ended.wait()):
                break
        self._signal(signal.SIGKILL)
        WATCHER.release(self.pid)
        self._drain.cancel()
        self._watch.cancel()
        self._transport.close()

    async def _end_output(self) -> None:
        """When the process has ended and nothing more comes, end its output too."""
        await self._ended.wait()
        loop = asyncio.get_running_loop()
        ended = loop.time()
        while True:
            await asyncio.sleep(LAST_WORDS_SECONDS / 3)
            since = self._idle_since
            if since is not None and loop.time() - max(since, ended) >= LAST_WORDS_SECONDS:
                self.out.set_exception(EOFError("the process has ended"))
                return

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            LOG.debug("process group %d is gone", self._process.pid)
        except PermissionError as error:
            LOG.warning("cannot signal process group %d: %s", self._process.pid, error)

    def _said(self) -> str:
        text = "\n".join(self._stderr).strip()[-_TAIL_CHARS:]
        return f"; its stderr ended: {text}" if text else ""

    async def _keep_tail(self, stderr: asyncio.StreamReader) -> None:
        partial = b""
        while chunk := await stderr.read(65536):
            *lines, partial = (partial + chunk)[-65536:].split(b"\n")
            self._stderr.extend(line.decode(errors="replace") for line in lines)
        if partial:
            self._stderr.append(partial.decode(errors="replace"))


async def start(command: Command, environment: Mapping[str, str]) -> Child:
    """Run `command` with the allowed part of `environment` and its own `env`.

    Raises:
        CannotStart: the program is missing or may not be run; the message says which.
    """
    env = {name: environment[name] for name in ALLOWED_ENVIRONMENT if name in environment}
    env.update(command.env)
    program = shutil.which(command.program, path=env.get("PATH"))
    if program is None:
        raise CannotStart(f"no program {command.program!r} on the PATH")
    try:
        loop = asyncio.get_running_loop()
        transport, streams = await loop.subprocess_exec(
            lambda: _Streams(loop),
            program,
            *command.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            cwd=command.cwd,
            start_new_session=True,
            preexec_fn=_die_with_parent() if command.tied else None,
        )
    except (OSError, ValueError) as error:
        raise CannotStart(f"cannot run {command.program!r}: {error}") from error
    child = Child(transport, streams)
    if command.tied:
        WATCHER.watch(child.pid)
    return child


async def _at_most(seconds: float, what: Awaitable[object]) -> bool:
    """Wait for it, no longer than that; did it come?"""
    try:
        async with asyncio.timeout(seconds):
            await what
    except TimeoutError:
        return False
    return True


def _die_with_parent() -> Callable[[], None] | None:
    """On Linux: have the kernel kill the child when we die, even by `kill -9`."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)

    def ask_kernel() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return ask_kernel
