"""Who ends what our children started, when we are ended by `kill -9`.

The kernel can end a child with us (`wire/child.py`), but not what that child started. So a shell
holds the end of a pipe (1.7 MB resident): it is told of every process group that we start and end,
and when the pipe closes, as it does however we end, it kills the groups that are left.
"""

import os
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
        self.shell = 0
        """Its process; 0: there is none."""
        self._pipe = -1

    def watch(self, group: int) -> None:
        """Have this process group ended with us."""
        self._groups.add(group)
        if self.shell:
            self._tell("+", [group])
        elif sys.platform.startswith("linux"):
            self._begin()

    def release(self, group: int) -> None:
        """It is gone: its number may soon be another's."""
        if group in self._groups:
            self._groups.discard(group)
            self._tell("-", [group])

    def close(self) -> None:
        """As when we end: the groups that are left are ended, and so is the shell."""
        if self.shell:
            os.close(self._pipe)
            os.waitpid(self.shell, 0)
            self.shell = 0

    def _begin(self) -> None:
        ours, self._pipe = os.pipe()
        try:
            self.shell = os.posix_spawn(
                SHELL,
                ["sh", "-c", _SCRIPT, "upwell-watcher"],
                {},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, ours, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
            )
        except OSError as error:
            LOG.warning("nobody watches what servers start: %s", error)
            os.close(self._pipe)
            return
        finally:
            os.close(ours)
        self._tell("+", self._groups)

    def _tell(self, verb: str, groups: Iterable[int]) -> None:
        """A shell that somebody ended is replaced, and told everything."""
        if not self.shell:
            return
        try:
            os.write(self._pipe, b"".join(b"%b %d\n" % (verb.encode(), one) for one in groups))
        except BrokenPipeError:
            self.close()
            self._begin()


WATCHER = Watcher()
"""The one of this process: what it started is its own, whoever asked for it."""
