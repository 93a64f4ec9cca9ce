"""A child process that speaks a protocol on stdin and stdout.

Its environment contains only the variables on an allow-list and those that the user configured. It
has its own process group. On Linux, a `tied` child dies with the gateway: the kernel kills the
child, and a watcher kills the rest of the group. The last lines of the child's stderr are kept for
error messages.
"""

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field

from upwell.ground.background import BackgroundTasks
from upwell.ground.trace import LOG
from upwell.wire.lines import PipeSink

SHELL = "/bin/sh"
_SCRIPT = """
trap '' HUP INT QUIT TERM
groups=' '
while read -r verb group; do
  case $verb in
    +) groups="$groups$group " ;;
    -) groups="${groups%% $group *} ${groups#* $group }" ;;
  esac
done
for group in $groups; do kill -9 "-$group"; done
"""


class Watcher:
    """Kills the process groups of our children however this process ends, even by `kill -9`: when a
    pipe closes, a shell (1.7 MB resident) kills those of which it was told through the pipe. It is
    started when the first group is watched."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self.shell = 0
        """The process id of the shell, or 0 if none is running."""
        self._pipe = -1

    def watch(self, group: int) -> None:
        """Have this process group killed when the gateway ends. This works only on Linux."""
        self._groups.add(group)
        if self.shell:
            self._tell("+", [group])
        elif sys.platform.startswith("linux"):
            self._begin()

    def release(self, group: int) -> None:
        if group in self._groups:
            self._groups.discard(group)
            self._tell("-", [group])

    def close(self) -> None:
        """Close the pipe, so that the shell kills the remaining groups and exits."""
        if self.shell:
            os.close(self._pipe)
            os.waitpid(self.shell, 0)
            self.shell = 0

    def _begin(self) -> None:
        reader, self._pipe = os.pipe()
        try:
            self.shell = os.posix_spawn(
                SHELL,
                ["sh", "-c", _SCRIPT, "upwell-watcher"],
                {},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, reader, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
            )
        except OSError as error:
            LOG.warning("the processes that servers start are not watched: %s", error)
            os.close(self._pipe)
            return
        finally:
            os.close(reader)
        self._tell("+", self._groups)

    def _tell(self, verb: str, groups: Iterable[int]) -> None:
        """Write to the shell. If it was killed, start another shell and give it all groups."""
        if not self.shell:
            return
        try:
            os.write(self._pipe, b"".join(b"%b %d\n" % (verb.encode(), group) for group in groups))
        except BrokenPipeError:
            self.close()
            self._begin()


WATCHER = Watcher()
"""The watcher shared by everything in this process."""


ALLOWED_ENVIRONMENT = (
    *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ"),
    *("USER", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)
"""The variables that programs need to run and to reach the network."""
_TAIL_LINES = 20
_TAIL_CHARS = 2000
_READ_BYTES = 256 * 1024
_PR_SET_PDEATHSIG = 1
LAST_WORDS_SECONDS = 0.3
"""If a process has exited and its output has been silent for this long, the output counts as
complete.
"""


class ChildCommand(Struct, frozen=True, kw_only=True):
    """A program and its arguments, never a shell command line. On Linux, a `tied` child and
    its process group die with the gateway, but starting it takes longer. A child that starts
    no processes and exits when its stdin closes need not be tied.
    """

    program: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    tied: bool = True


class CannotStart(OSError):
    """The program is missing, or may not be run."""


class _Streams(asyncio.subprocess.SubprocessStreamProtocol):
    """Sets `ended` when the process exits. asyncio's own `wait()` also waits for the pipes, which
    another process may hold open."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=_READ_BYTES, loop=loop)
        self.ended = asyncio.Event()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Unlike asyncio's method, tolerate a caller that no longer waits for the pipe to close."""
        with contextlib.suppress(asyncio.InvalidStateError):
            super().pipe_connection_lost(fd, exc)

    def process_exited(self) -> None:
        super().process_exited()
        self.ended.set()


class Child:
    """A running child process. `out` is its stdout, and `sink` is its stdin. As a `Source`, the
    child can be read until it exits, even if another process holds its stdout open."""

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
        self._tasks = BackgroundTasks(f"process {process.pid}")
        self._reading_stderr = self._tasks.start(self._read_stderr(process.stderr))
        self._tasks.start(self._end_output())

    @property
    def pid(self) -> int:
        return self._process.pid

    async def read(self, most: int) -> bytes:
        """Return the next bytes of stdout, or `b""` at its end or after the process has exited."""
        self._idle_since = asyncio.get_running_loop().time()
        try:
            return await self.out.read(most)
        except EOFError:
            return b""
        finally:
            self._idle_since = None

    async def exit_reason(self, patience_seconds: float = 0.5) -> str:
        await _finishes(patience_seconds, self._ended.wait())
        code = self._process.returncode
        if code is None:
            return "it closed its output but is still running" + self._stderr_tail()
        await asyncio.wait([self._reading_stderr], timeout=patience_seconds)
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        return f"it ended with {how}" + self._stderr_tail()

    async def stop(self, grace_seconds: float = 2.0) -> None:
        """Stop the child and its process group. Closes the child's stdin, sends SIGTERM after
        `grace_seconds`, and sends SIGKILL after another `grace_seconds`."""
        await self.sink.aclose()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                self._signal(number)
            if await _finishes(grace_seconds, self._ended.wait()):
                break
        # The group may still contain processes that the child started. Nothing may be awaited until
        # the transport is closed, because a cancellation would leak the pipes.
        self._signal(signal.SIGKILL)
        WATCHER.release(self.pid)
        self._tasks.cancel()
        self._transport.close()
        await self._tasks.drain()

    async def _end_output(self) -> None:
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

    def _stderr_tail(self) -> str:
        text = "\n".join(self._stderr).strip()[-_TAIL_CHARS:]
        return f"; its stderr ended: {text}" if text else ""

    async def _read_stderr(self, stderr: asyncio.StreamReader) -> None:
        partial = b""
        while chunk := await stderr.read(65536):
            *lines, partial = (partial + chunk)[-65536:].split(b"\n")
            self._stderr.extend(line.decode(errors="replace") for line in lines)
        if partial:
            self._stderr.append(partial.decode(errors="replace"))


async def start(command: ChildCommand, environment: Mapping[str, str]) -> Child:
    """Run `command` with the allowed part of `environment` and its own `env`. Raises
    CannotStart."""
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


async def _finishes(seconds: float, work: Awaitable[object]) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return False
    return True


def _die_with_parent() -> Callable[[], None] | None:
    """Return a function with which a new child asks the Linux kernel to kill it when the gateway
    dies, even by `kill -9`. Returns None on other systems."""
    if not sys.platform.startswith("linux"):
        return None
    # Loaded before the fork, because only async-signal-safe calls are allowed between fork and
    # exec.
    libc = ctypes.CDLL(None)

    def ask_kernel() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return ask_kernel
