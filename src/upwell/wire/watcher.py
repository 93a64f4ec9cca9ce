"""Who ends what our children started, when we are ended by `kill -9`.

The kernel can end a child with us (`wire/child.py`), but not what that child started. So a shell of
half a megabyte holds the end of a pipe: it is told of every process group that we start and end,
and when the pipe closes, as it does however we end, it kills the groups that are left.
"""

import subprocess
import sys
from collections.abc import Iterable

from upwell.ground.trace import LOG

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
    """One shell for a whole process, started with the first group that it is told of."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._shell: subprocess.Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        """Have this process group ended with us."""
        self._groups.add(group)
        if self._shell is None:
            self._begin()
        else:
            self._tell("+", [group])

    def release(self, group: int) -> None:
        """It is gone: its number may soon be another's."""
        if group in self._groups:
            self._groups.discard(group)
            self._tell("-", [group])

    def _begin(self) -> None:
        if not sys.platform.startswith("linux"):
            return
        try:
            self._shell = subprocess.Popen(
                [SHELL, "-c", _SCRIPT, "upwell-watcher"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env={},
                bufsize=0,
            )
        except OSError as error:
            LOG.warning("nobody watches what servers start: %s", error)
            return
        self._tell("+", self._groups)

    def _tell(self, verb: str, groups: Iterable[int]) -> None:
        """A shell that somebody ended is replaced, and told everything."""
        if self._shell is None or self._shell.stdin is None:
            return
        try:
            self._shell.stdin.write(b"".join(b"%b %d\n" % (verb.encode(), one) for one in groups))
        except BrokenPipeError:
            self._shell.stdin.close()
            self._shell.kill()
            self._shell.wait()
            self._begin()


WATCHER = Watcher()
"""The one of this process: what it started is its own, whoever asked for it."""
