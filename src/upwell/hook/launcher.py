"""The launchers: two scripts in upwell's home that agents' settings files call. One runs hooks, and
the other runs MCP servers.

They contain the paths of a Python interpreter and of a program. The daemon and commands such as
`upwell doctor` update these paths, so that the scripts stay valid when Python is upgraded or upwell
moves. If upwell is gone, a hook answers nothing, and a wrapped server runs alone. Starting a script
takes less than 0.5 ms.
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


def write(home: Home) -> None:
    """Write the launchers for this upwell, unless they are up to date.

    Raises:
        StoreUnwritable: a launcher cannot be written.
    """
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
    """Write the launchers for this upwell unless they are up to date, and return the path of that
    for hooks. If the home is not writable, they stay as they are."""
    with contextlib.suppress(StoreUnwritable):
        write(home)
    return home.hook_launcher


def refresh_installed(home: Home) -> None:
    """Refresh the launchers if there is one."""
    if home.hook_launcher.is_file() or home.server_launcher.is_file():
        refresh(home)
