"""Find the agent's session that a gateway belongs to.

Hooks record a session with its host (the agent's name) under two keys: the agent's process, which
started the hooks, and the working directory. A gateway looks its session up by its own host, and by
the process that started it or, if a wrapper hides the agent's process, by the working directory.
Sessions of other hosts are never joined. If the host has several sessions in a folder, none of them
is joined by the folder.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.ledger import EntryKind, TtlStore
from upwell.ground.project import real_folder
from upwell.ground.trace import LOG

KIND = EntryKind.HOST_SESSION
TTL_SECONDS = 86_400.0
LOOK_SECONDS = 5.0
MAX_HOSTS = 20
PROC = "/proc"
"""The system's folder of processes. macOS has none; `ps` is asked instead."""
PS = "/bin/ps"
PS_SECONDS = 2.0
_WRAPPERS = frozenset({"sh", "bash", "dash", "zsh", "fish", "npx", "npm", "uv", "uvx", "env"})
_MAX_WRAPPERS = 3
_WORDS = 7
"""The words that `ps` prints: the parent, `Mon Nov 30 06:49:27 2026` and the command."""
_BELOW = "/subagent/"


class HostSessions:
    """Sessions that hooks have recorded in the TTL store, keyed by process and by folder.

    An entry under a process has the host and the session as its value. An entry under a folder has
    the host, the folder and the session in its key, and the process, if known, as its value.
    """

    def __init__(self, ttl_store: TtlStore) -> None:
        self._ttl_store = ttl_store

    async def record(self, host: str, parent: int, cwd: str | None, session: str) -> None:
        """Record that a hook of `host`, started by the process `parent`, ran in this session."""
        if not session:
            return
        process = await _looked_up(_agent_key, parent) if parent > 1 else ""
        values = {process: f"{host} {session}"} if process else {}
        if cwd:
            values[_folder(host, cwd) + session] = process
        encoded = {key: value.encode(errors="replace") for key, value in values.items()}
        await self._ttl_store.put(KIND, encoded, ttl_seconds=TTL_SECONDS)

    async def end(self, host: str, session: str) -> None:
        """Record that the session has ended, so that no gateway joins it by its folder."""
        items = await self._ttl_store.scan(KIND, _folder(host, ""))
        ended = [item.key for item in items if item.key.endswith(f"\n{session}")]
        await self._ttl_store.delete(KIND, ended)

    async def joined(self, host: str, parent: int, cwd: str | None) -> str:
        """Return the session that hooks of `host` recorded for the agent's process or, failing
        that, the only running session that they recorded for the folder `cwd`; "" if there is
        none. `parent` is the process that started the gateway."""
        process = await _looked_up(_agent_key, parent)
        if item := (await self._ttl_store.get(KIND, [process])).get(process):
            recorded, _, session = item.value.decode(errors="replace").partition(" ")
            if recorded == host:
                return session
        return await self._alone_in(host, cwd) if cwd else ""

    async def begins_again(self, parent: int, session: str) -> bool:
        """Record that a session began. Returns whether the process that runs the hook began the
        same session before, and no other one since."""
        if parent <= 1:
            return False
        process = await _looked_up(_agent_key, parent)
        key, value = f"begun:{process}", session.encode(errors="replace")
        known = (await self._ttl_store.get(KIND, [key])).get(key)
        await self._ttl_store.put(KIND, {key: value}, ttl_seconds=TTL_SECONDS)
        return known is not None and known.value == value

    async def _alone_in(self, host: str, cwd: str) -> str:
        prefix = _folder(host, cwd)
        newest: dict[str, str] = {}
        for item in await self._ttl_store.scan(KIND, prefix):
            process = item.value.decode(errors="replace")
            if await _looked_up(_is_running, process):
                newest[process or item.key] = item.key.removeprefix(prefix)
        return next(iter(newest.values())) if len(newest) == 1 else ""


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


class JoinedSessions:
    """The agents' sessions that this process belongs to: one for each host among its clients. They
    may change while the process is running, so they are looked up again every few seconds.
    """

    def __init__(
        self, sessions: HostSessions, parent: int, cwd: str | None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._sessions = sessions
        self._parent = parent
        self._cwd = cwd
        self._clock = clock
        self._known: dict[str, str] = {}
        self._until: dict[str, float] = {}

    def known(self, host: str, own: str) -> str:
        """Return the session found by the last look-up for this host, or `own` if no hook recorded
        a session."""
        return self._known.get(host) or own

    async def session(self, host: str, own: str) -> str:
        """Return the session. If the last look-up is too old, it is repeated first."""
        if host and self._clock.monotonic() >= self._until.get(host, 0.0):
            if host not in self._until and len(self._until) >= MAX_HOSTS:
                return own
            self._until[host] = self._clock.monotonic() + LOOK_SECONDS
            try:
                self._known[host] = await self._sessions.joined(host, self._parent, self._cwd)
            except StoreError as error:
                LOG.warning("the agent's session cannot be looked up: %s", error)
        return self.known(host, own)


def agent_of(pid: int) -> int:
    """Return the nearest process, from `pid` upwards, that is neither a shell nor a launcher.
    At most `_MAX_WRAPPERS` processes are skipped.

    Returns `pid` itself if the process cannot be inspected.
    """
    for _ in range(_MAX_WRAPPERS):
        process = _process(pid)
        if process is None or process.name not in _WRAPPERS:
            return pid
        pid = process.parent
    return pid


def own_parent() -> int:
    """Return the id of the process that started this one."""
    return os.getppid()


async def _looked_up[T, R](look: Callable[[T], R], subject: T) -> R:
    """Call `look`, in a thread if it has to run `ps`, which would hold up the event loop."""
    if os.path.exists(PROC):
        return look(subject)
    return await asyncio.to_thread(look, subject)


def _agent_key(pid: int) -> str:
    return _key(agent_of(pid))


def _key(pid: int) -> str:
    """Return a key for a process. It contains the start time, because process ids are reused."""
    process = _process(pid)
    return f"pid:{pid}:{process.started if process else ''}"


class _Process(NamedTuple):
    name: str
    parent: int
    started: str


def _process(pid: int) -> _Process | None:
    """Return what the system knows of a process, or None if it is gone or cannot be inspected."""
    if not os.path.exists(PROC):
        return _listed(pid)
    try:
        stat = Path(f"{PROC}/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    return _Process(name, int(fields[1]), fields[19])


def _listed(pid: int) -> _Process | None:
    """Return what `ps` knows of a process. The time zone is set, so that a process keeps its start
    time when the user travels."""
    import subprocess

    # POSIX takes all that follows an `=` for the column's header, so each column has its own `-o`.
    columns = [word for name in ("ppid", "lstart", "comm") for word in ("-o", f"{name}=")]
    try:
        listing = subprocess.run(
            [PS, "-ww", *columns, "-p", str(pid)],
            env={"LC_ALL": "C", "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PS_SECONDS,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = listing.strip().split(maxsplit=6)
    if len(words) < _WORDS:
        return None
    parent, *started, command = words
    # The command of macOS is a path, or a login shell's name after a hyphen.
    return _Process(os.path.basename(command).removeprefix("-"), int(parent), " ".join(started))


def _is_running(process: str) -> bool:
    """Return whether a recorded process is still running. True if that cannot be found out."""
    _, _, numbers = process.partition(":")
    pid, _, started = numbers.partition(":")
    return not started or _key(int(pid)) == process


def _folder(host: str, cwd: str) -> str:
    """Return the beginning of the keys for a host's sessions in a folder, or in every folder if
    `cwd` is ""."""
    return f"cwd:{host}:{real_folder(cwd)}\n" if cwd else f"cwd:{host}:"
