"""The server's process. It has the relay's folder, environment, process group and stderr, and the
relay ends as it ends."""

import _signal
import os
import sys

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""The exit statuses of a shell for a command that it cannot run."""
_IGNORED_BY_PYTHON = [
    number for name in ("SIGPIPE", "SIGXFSZ") if (number := getattr(_signal, name, 0))
]
_LOCALE = "LC_CTYPE"


class ServerCannotStart(Exception):
    """`status` is the exit status of a shell in this case."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


class WrappedServer:
    """A running server. `stdin` and `stdout` are our ends of its pipes. `wait_status` is None while
    the process runs."""

    def __init__(self, command: list[str]) -> None:
        their_stdin, self.stdin = os.pipe()
        self.stdout, their_stdout = os.pipe()
        actions = [
            (os.POSIX_SPAWN_DUP2, their_stdin, 0),
            (os.POSIX_SPAWN_DUP2, their_stdout, 1),
        ]
        try:
            self.pid = os.posix_spawnp(
                command[0],
                command,
                environment(),
                file_actions=actions,
                setsigdef=_IGNORED_BY_PYTHON,
            )
        except OSError as error:
            status = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            raise ServerCannotStart(
                f"cannot run {command[0]!r}: {error.strerror}", status
            ) from None
        finally:
            os.close(their_stdin)
            os.close(their_stdout)
        self.wait_status: int | None = None

    def signal(self, number: int) -> None:
        if self.wait_status is None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def reap(self) -> None:
        """Take note of children that have ended: the server, or a daemon that the relay started."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.wait_status = status


def environment() -> dict[str, str]:
    """The environment in which this process was started. In the C locale, Python adds a variable to
    its own (PEP 538)."""
    variables = dict(os.environ)
    if _LOCALE in variables and sys.platform.startswith("linux"):
        try:
            with open("/proc/self/environ", "rb", buffering=0) as file:
                began_with = file.read()
        except OSError:
            return variables
        if _LOCALE.encode() + b"=" not in began_with:
            del variables[_LOCALE]
    return variables


def end_as(wait_status: int) -> int:
    """End this process by the signal that ended the server. If the server exited by itself, return
    its exit status."""
    if os.WIFEXITED(wait_status):
        return os.WEXITSTATUS(wait_status)
    number = os.WTERMSIG(wait_status)
    if number not in (_signal.SIGKILL, _signal.SIGSTOP):
        _signal.signal(number, _signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number
