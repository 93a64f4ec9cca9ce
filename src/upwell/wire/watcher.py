"""Kill the processes that our children started, even if the gateway is killed with `kill -9`.

The kernel can kill a child when its parent dies (`wire/child.py`), but not the processes that the
child started. The gateway therefore starts a shell (1.7 MB resident), and writes to a pipe to tell
it which process groups have started and ended. However the gateway ends, the pipe closes, and the
shell then kills the remaining groups.
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
    """This process's shell, started when the first group is watched."""

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
        """Stop watching a group that has ended. Its number may soon be reused."""
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
