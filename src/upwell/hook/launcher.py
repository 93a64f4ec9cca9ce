"""The hook launcher: a script in upwell's home that agents' settings files call.

It contains the paths of a Python interpreter and of the hook client. The daemon and commands such
as `upwell doctor` update these paths, so that hooks stay valid when Python is upgraded or upwell
moves. Starting the script takes less than 0.5 ms.
"""

import contextlib
import os
import shlex
import sys
from pathlib import Path

from upwell.ground.errors import StoreUnwritable
from upwell.ground.files import write_atomically, writing
from upwell.ground.home import Home
from upwell.hook import client

_SCRIPT = """\
#!/bin/sh
# The hooks of agents run this script; upwell rewrites it when upwell or its Python has moved.
python=%s client=%s
if [ -x "$python" ] && [ -f "$client" ]; then exec "$python" -I -S "$client" "$@"; fi
if command -v upwell >/dev/null 2>&1; then exec upwell hook "$@"; fi
echo "upwell is no longer at $client, nor on the PATH" >&2
echo "{}"
"""


def write(home: Home) -> None:
    """Write the launcher for this upwell, unless it is up to date.

    Raises:
        StoreUnwritable: the launcher cannot be written.
    """
    path = home.hook_launcher
    script = _SCRIPT % (shlex.quote(sys.executable), shlex.quote(_client()))
    with writing(path):
        if not path.is_file() or path.read_text() != script or not os.access(path, os.X_OK):
            write_atomically(path, script, 0o700)


def refresh(home: Home) -> Path:
    """Write the launcher for this upwell unless it is up to date, and return its path. If the home
    is not writable, the launcher stays as it is."""
    with contextlib.suppress(StoreUnwritable):
        write(home)
    return home.hook_launcher


def refresh_installed(home: Home) -> None:
    """Refresh the launcher if there is one."""
    if home.hook_launcher.is_file():
        refresh(home)


def _client() -> str:
    return str(Path(client.__file__).resolve())
