"""Writes the launchers: two scripts in upwell's home that agents' settings files call, for hooks
and for MCP servers. Then queries the state of daemons, and stops them (`upwell daemon`).

The launchers contain the paths of a Python interpreter and of a program. The daemon and commands
such as `upwell doctor` update them when Python is upgraded or upwell moves. If upwell is gone, a
hook answers nothing, and a wrapped server runs alone. A launcher takes less than 0.5 ms.
"""

import contextlib
import fcntl
import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from upwell.ground.errors import StoreUnwritable
from upwell.ground.files import Home, write_atomically, writing
from upwell.hook import client
from upwell.hook.daemon import CONTROL
from upwell.hook.place import ROOT, DaemonPlace, default_home, is_private

_HOOKS = """\
#!/bin/sh
# The hooks of agents run this script; upwell rewrites it when upwell or its Python has moved.
python=%s client=%s
if [ -x "$python" ] && [ -f "$client" ]; then exec "$python" -I -S "$client" "$@"; fi
if command -v upwell >/dev/null 2>&1; then exec upwell hook "$@"; fi
echo "upwell is no longer at $client, nor on the PATH" >&2
echo "{}"
"""
_SERVERS = """\
#!/bin/sh
# Agents start their MCP servers with this script: upwell wrap --name NAME -- COMMAND. Without
# upwell, it starts COMMAND alone. upwell rewrites it when upwell or its Python has moved.
python=%s program=%s home=%s verb=$1
shift
[ "$verb" = serve ] && { verb="serve --tools"; shift; }
if [ -x "$python" ] && [ -f "$program" ]; then
  exec "$python" -I -S "$program" $verb --home "$home" "$@"
fi
if command -v upwell >/dev/null 2>&1; then exec upwell $verb --home "$home" "$@"; fi
while [ $# -gt 1 ]; do
  word=$1
  shift
  if [ "$word" = -- ]; then exec "$@"; fi
done
echo "upwell is no longer at $program, nor on the PATH" >&2
exit 127
"""


def write_launchers(home: Home) -> None:
    """Write the launchers, unless they are up to date. Raises StoreUnwritable."""
    python, root = shlex.quote(sys.executable), Path(client.__file__).resolve().parents[1]
    hooks = _HOOKS % (python, shlex.quote(str(root / "hook" / "client.py")))
    program, folder = shlex.quote(str(root / "wrap" / "start.py")), shlex.quote(str(home.root))
    servers = _SERVERS % (python, program, folder)
    for path, script in ((home.hook_launcher, hooks), (home.server_launcher, servers)):
        with writing(path):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            if not path.is_file() or path.read_text() != script or not os.access(path, os.X_OK):
                write_atomically(path, script, 0o700)


def refresh(home: Home) -> Path:
    """Return the path of the launcher for hooks. If the home is not writable, the launchers stay as
    they are."""
    with contextlib.suppress(StoreUnwritable):
        write_launchers(home)
    return home.hook_launcher


def refresh_installed(home: Home) -> None:
    if home.hook_launcher.is_file() or home.server_launcher.is_file():
        refresh(home)


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
    folder = DaemonPlace(default_home(), root).folder
    if not is_private(folder):
        return []
    cards = map(_card, sorted(Path(folder).glob("*.json")))
    daemons = [daemon_at(str(card.get("home", "")), root) for card in cards]
    return [daemon for daemon in daemons if daemon]


def daemon_at(home: str, root: str = ROOT) -> Running | None:
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
    """Ask the daemon to stop, and kill it if it does not. Returns whether it is gone."""
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
