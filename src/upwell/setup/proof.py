"""Proves that an installed hook works: runs the command from the host's own file, as the host
would, with a recorded event.
"""

import json
import os
import secrets
import subprocess
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from upwell.ground.errors import UpwellError
from upwell.ground.types.cue import PROBE_SESSIONS
from upwell.hosts.base import Host

TIMEOUT_SECONDS = 30.0
ATTEMPTS = 3
"""An event is sent up to this many times, because the daemon may still be starting."""
_NOT_INHERITED = frozenset({"UPWELL_HOME", "COPILOT_CLI", "COPILOT_HOOK_DIR"})
"""Variables in this terminal's environment that would change the hook's output."""


class Proof(Struct, frozen=True, kw_only=True):
    """The outcome of a test. `fault` is "" if the hook works. `command` is the command that ran."""

    host: str
    event: str
    command: Sequence[str] = ()
    fault: str = ""


def prove(
    host: Host,
    hooks_file: str,
    folder: str,
    environment: Mapping[str, str],
    events_answered: Callable[[], int],
) -> Proof:
    """Run the host's session-start command, as if a session started in `folder`. `hooks_file` is
    the content of the host's hooks file. `events_answered()` returns the daemon's count of answered
    events.
    """
    event, _ = host.events.start("", folder)
    try:
        command = host.hooks.command(hooks_file, event)
    except UpwellError as error:
        return Proof(host=host.name, event=event, fault=error.message)
    if not command:
        return Proof(host=host.name, event=event, fault="the file has no command for this event")
    fault = ""
    for _ in range(ATTEMPTS):
        before = events_answered()
        _, payload = host.events.start(f"{PROBE_SESSIONS}{secrets.token_hex(4)}", folder)
        fault = _fault(command, json.dumps(payload).encode(), environment)
        if not fault and events_answered() > before:
            break
        fault = fault or "the command succeeded, but no daemon answered the event"
    return Proof(host=host.name, event=event, command=command, fault=fault)


def run_once(host: Host, hooks_file: str, environment: Mapping[str, str], seconds: float) -> str:
    """Run the command from `hooks_file` like `prove()`, but with an event that upwell ignores.
    Returns what is wrong with the command, or "" if it works.

    Raises:
        ConfigError: the file does not have the expected structure.
    """
    command = host.hooks.command(hooks_file, host.events.start("", "")[0])
    if not command:
        return "the file has no command for this event"
    return _fault(command, b"{}", environment, seconds)


def _fault(
    command: Sequence[str],
    body: bytes,
    environment: Mapping[str, str],
    seconds: float = TIMEOUT_SECONDS,
) -> str:
    inherited = {key: value for key, value in environment.items() if key not in _NOT_INHERITED}
    try:
        done = subprocess.run(
            command,
            input=body,
            env=inherited,
            cwd=os.sep,
            capture_output=True,
            timeout=seconds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the command cannot run: {error}"
    if done.returncode != 0:
        return f"the command ended with status {done.returncode}"
    if done.stderr:
        return f"the command wrote to stderr: {done.stderr.decode(errors='replace').strip()[:200]}"
    try:
        is_object = isinstance(json.loads(done.stdout), dict)
    except ValueError:
        is_object = False
    return "" if is_object else "the answer is not a JSON object"
