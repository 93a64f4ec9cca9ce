"""A command on a terminal, and the keys of its user."""

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ASKING = b"? "
SECONDS = 30.0


def typed(
    command: Sequence[str],
    keys: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path,
    status: int = 0,
    then: signal.Signals | None = None,
) -> str:
    """Run the command on a terminal and press each of the keys when it asks, `then` send a signal
    when it asks again. Returns the text on the terminal. The command must end with this status."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        command,
        env={**environment, "TERM": "dumb"},
        cwd=cwd,
        stdin=child,
        stdout=child,
        stderr=child,
        start_new_session=True,
    )
    os.close(child)
    try:
        shown = b""
        for key in keys:
            shown += _until_asked(parent)
            os.write(parent, key.encode())
        if then is not None:
            shown += _until_asked(parent)
            process.send_signal(then)
        shown += _rest(parent)
        assert process.wait(SECONDS) == status, shown.decode()
        return shown.decode()
    finally:
        process.kill()
        process.wait()
        os.close(parent)


def _until_asked(terminal: int) -> bytes:
    shown, deadline = b"", time.monotonic() + SECONDS
    while not shown.endswith(ASKING):
        assert time.monotonic() < deadline, shown.decode()
        chunk = _read(terminal)
        assert chunk is not None, f"the command ended: {shown.decode()}"
        shown += chunk
    return shown


def _rest(terminal: int) -> bytes:
    shown, deadline = b"", time.monotonic() + SECONDS
    while (chunk := _read(terminal)) is not None:
        assert time.monotonic() < deadline, f"the command waits: {shown.decode()}"
        shown += chunk
    return shown


def _read(terminal: int) -> bytes | None:
    """The text that the command has written since the last call; None at its end."""
    ready, _, _ = select.select([terminal], [], [], 1.0)
    try:
        return os.read(terminal, 65_536) or None if ready else b""
    except OSError:
        return None  # Linux reports EIO when the other end is closed
