"""Which host session a process belongs to: a hook tells, the gateway of the same host asks.

Both are children of the agent, so the agent's process is what they share; where that is not to be
seen (a wrapper in between), the folder they run in.
"""

import os
from pathlib import Path

from upwell.ground.errors import StoreError
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.shelf import Shelf
from upwell.ground.trace import LOG

KIND = "host_session"
TTL_SECONDS = 86_400.0
LOOK_SECONDS = 5.0
_WRAPPERS = frozenset({"sh", "bash", "dash", "zsh", "fish", "npx", "npm", "uv", "uvx", "env"})
_MAX_WRAPPERS = 3
_BELOW = "/subagent/"


class HostSessions:
    """The sessions that hooks told of, on the shelf, by process and by folder."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def record(self, parent: int, cwd: str | None, session: str) -> None:
        """A hook that is a child of `parent` was called in this session."""
        if not session:
            return
        value = session.encode(errors="replace")
        keys = [_process(pid) for pid in (agent_of(parent),) if pid > 1]
        keys += [_folder(cwd)] if cwd else []
        await self._shelf.put(KIND, dict.fromkeys(keys, value), ttl_seconds=TTL_SECONDS)

    async def joined(self, parent: int, cwd: str | None) -> str:
        """The session of the agent that started a child of `parent`; "" when none is known."""
        keys = [_process(agent_of(parent))] + ([_folder(cwd)] if cwd else [])
        found = await self._shelf.get(KIND, keys)
        for key in keys:
            if key in found:
                return found[key].value.decode(errors="replace")
        return ""


def within(session: str, agent: str) -> str:
    """The session of a subagent that `session` started: what one is told the other does not see."""
    return f"{session}{_BELOW}{agent}" if agent else session


def is_subagents(session: str) -> bool:
    """Is it the session of a subagent?"""
    return _BELOW in session


def outermost(session: str) -> str:
    """The session that a subagent's belongs to; of any other, itself."""
    return session.partition(_BELOW)[0]


class Joined:
    """The agent's session that this process belongs to, by what its hooks told; it may change while
    the process runs, so it is looked for again every few seconds."""

    def __init__(
        self, sessions: HostSessions, parent: int, cwd: str | None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._sessions = sessions
        self._parent = parent
        self._cwd = cwd
        self._clock = clock
        self._known = ""
        self._until = 0.0

    def known(self, own: str) -> str:
        """The agent's session by the last look; `own` while no hook told of one."""
        return self._known or own

    async def session(self, own: str) -> str:
        """The agent's session, looked for anew when that is some seconds ago."""
        if self._clock.monotonic() >= self._until:
            self._until = self._clock.monotonic() + LOOK_SECONDS
            try:
                self._known = await self._sessions.joined(self._parent, self._cwd)
            except StoreError as error:
                LOG.warning("the agent's session cannot be looked up: %s", error)
        return self.known(own)


def agent_of(pid: int) -> int:
    """The process behind shells and launchers; `pid` itself where that cannot be seen (macOS)."""
    for _ in range(_MAX_WRAPPERS):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return pid
        name, _, rest = stat.partition("(")[2].rpartition(")")
        if name not in _WRAPPERS:
            return pid
        pid = int(rest.split()[1])
    return pid


def own_parent() -> int:
    """The process that started this one."""
    return os.getppid()


def _process(pid: int) -> str:
    """A process by its number and the time it began, since numbers are used again."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        began = stat.rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        began = ""
    return f"pid:{pid}:{began}"


def _folder(cwd: str) -> str:
    return f"cwd:{cwd}"
