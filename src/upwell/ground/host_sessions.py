"""Find the agent's session that a gateway belongs to.

Hooks record the session under two keys: the agent's process, which started them, and the working
directory. When the same agent starts a gateway, the gateway looks the session up by process or, if
a wrapper hides the agent's process, by working directory.
"""

import os
from pathlib import Path

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.trace import LOG
from upwell.ground.ttl_store import Kind, TtlStore

KIND = Kind.HOST_SESSION
TTL_SECONDS = 86_400.0
LOOK_SECONDS = 5.0
_WRAPPERS = frozenset({"sh", "bash", "dash", "zsh", "fish", "npx", "npm", "uv", "uvx", "env"})
_MAX_WRAPPERS = 3
_BELOW = "/subagent/"


class HostSessions:
    """Sessions that hooks have recorded in the TTL store, keyed by process and by folder."""

    def __init__(self, ttl_store: TtlStore) -> None:
        self._ttl_store = ttl_store

    async def record(self, parent: int, cwd: str | None, session: str) -> None:
        """Record that a hook, started by the process `parent`, ran in this session."""
        if not session:
            return
        value = session.encode(errors="replace")
        keys = [_process(pid) for pid in (agent_of(parent),) if pid > 1]
        keys += [_folder(cwd)] if cwd else []
        await self._ttl_store.put(KIND, dict.fromkeys(keys, value), ttl_seconds=TTL_SECONDS)

    async def joined(self, parent: int, cwd: str | None) -> str:
        """Return the session that hooks recorded for the agent's process or, failing that, for the
        folder `cwd`; "" if there is none. `parent` is the process that started the gateway."""
        keys = [_process(agent_of(parent))] + ([_folder(cwd)] if cwd else [])
        items = await self._ttl_store.get(KIND, keys)
        for key in keys:
            if key in items:
                return items[key].value.decode(errors="replace")
        return ""


def within(session: str, agent: str) -> str:
    """Return the id of a subagent's session within `session`.

    An agent and its subagent do not see each other's context, so each has a session of its own.
    """
    return f"{session}{_BELOW}{agent}" if agent else session


def is_of_subagent(session: str) -> bool:
    """Return whether this is a subagent's session."""
    return _BELOW in session


def outermost(session: str) -> str:
    """Return the session to which a subagent's session belongs. Any other session is returned as
    is."""
    return session.partition(_BELOW)[0]


class Joined:
    """The agent's session that this process belongs to. It may change while the process is running,
    so it is looked up again every few seconds.
    """

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
        """Return the session found by the last look-up, or `own` if no hook recorded a session."""
        return self._known or own

    async def session(self, own: str) -> str:
        """Return the session. If the last look-up is too old, it is repeated first."""
        if self._clock.monotonic() >= self._until:
            self._until = self._clock.monotonic() + LOOK_SECONDS
            try:
                self._known = await self._sessions.joined(self._parent, self._cwd)
            except StoreError as error:
                LOG.warning("the agent's session cannot be looked up: %s", error)
        return self.known(own)


def agent_of(pid: int) -> int:
    """Return the nearest process, from `pid` upwards, that is neither a shell nor a launcher.
    At most `_MAX_WRAPPERS` processes are skipped.

    Returns `pid` itself where processes cannot be inspected (macOS).
    """
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
    """Return the id of the process that started this one."""
    return os.getppid()


def _process(pid: int) -> str:
    """Return a key for a process. It contains the start time, because process ids are reused."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        started = stat.rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        started = ""
    return f"pid:{pid}:{started}"


def _folder(cwd: str) -> str:
    return f"cwd:{cwd}"
