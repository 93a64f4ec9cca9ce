"""Query the state of daemons, and stop them (`upwell daemon`)."""

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from upwell.hook import client
from upwell.hook.daemon import CONTROL
from upwell.hook.place import ROOT, DaemonPlace, default_home, is_private

ASK_SECONDS = 2.0
END_SECONDS = 5.0
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Running:
    """A daemon of this user. `state` is the daemon's description of itself. It is empty if the
    daemon does not answer."""

    place: DaemonPlace
    pid: int
    home: str
    version: str
    started_at: float
    state: Mapping[str, Any] = field(default_factory=dict)

    @property
    def answers(self) -> bool:
        return bool(self.state)


def running(root: str = ROOT) -> list[Running]:
    """Return this user's running daemons, for all homes."""
    folder = DaemonPlace(default_home(), root).folder
    if not is_private(folder):
        return []
    daemons = [daemon_at(_home_of(card), root) for card in sorted(Path(folder).glob("*.json"))]
    return [daemon for daemon in daemons if daemon]


def daemon_at(home: str, root: str = ROOT) -> Running | None:
    """Return a home's daemon, or None if there is none."""
    place = DaemonPlace(home, root)
    if not home or not is_private(place.folder) or not is_locked(place):
        return None
    card = _card(Path(place.card))
    return Running(
        place=place,
        pid=int(card.get("pid", 0)),
        home=place.home,
        version=str(card.get("version", "")),
        started_at=float(card.get("started_at", 0.0)),
        state=ask(place, "status"),
    )


def ask(place: DaemonPlace, command: str, seconds: float = ASK_SECONDS) -> Mapping[str, Any]:
    """Return the daemon's answer to `status` or `stop`, or an empty mapping if there is none."""
    reply = client.ask(place, (CONTROL, command, "0", "0"), b"", seconds)
    try:
        state = orjson.loads(reply or b"{}")
    except orjson.JSONDecodeError:
        return {}
    return state if isinstance(state, dict) else {}


def is_locked(place: DaemonPlace) -> bool:
    """Return whether a daemon for this home is running. A daemon holds the lock while it runs."""
    try:
        lock = os.open(place.lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def end(daemon: Running) -> bool:
    """Ask the daemon to stop, and kill it if it does not stop. Returns whether it is gone."""
    if ask(daemon.place, "stop") and _is_gone(daemon.place):
        return True
    for number in (signal.SIGTERM, signal.SIGKILL):
        # A daemon that has just started writes its pid a moment after it takes the lock.
        pid = daemon.pid or int(_card(Path(daemon.place.card)).get("pid", 0))
        if pid > 1 and is_locked(daemon.place):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        if _is_gone(daemon.place):
            return True
    return False


def _is_gone(place: DaemonPlace) -> bool:
    deadline = time.monotonic() + END_SECONDS
    while is_locked(place):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _card(path: Path) -> Mapping[str, Any]:
    try:
        card = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return card if isinstance(card, dict) else {}


def _home_of(card: Path) -> str:
    return str(_card(card).get("home", ""))
