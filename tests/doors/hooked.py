"""A home with memories, a daemon of its own, and the hook as an agent runs it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from upwell.hook import client
from upwell.hook.control import daemon_at, end
from upwell.hook.place import DaemonPlace

QUICK = [sys.executable, "-I", "-S", str(Path(client.__file__))]
START_SECONDS = 30.0
HANG_SECONDS = 20.0
COMING_SECONDS = 30.0
PATIENCE = {
    "UPWELL_HOOK__PROMPT_MS": "8000",
    "UPWELL_HOOK__TOOL_MS": "8000",
    "UPWELL_HOOK__COLD_MS": "8000",
}
"""A generous time limit, because the machine may be busy and these tests are about the answer, not
about its time.
"""


class House:
    """One home below `folder`, and a repository to work in."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        (self.project / ".git").mkdir(parents=True)
        (self.project / "src").mkdir()
        (folder / "user").mkdir()
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "user"),
            "UPWELL_HOME": str(self.home),
            "LANG": "C.UTF-8",
            **PATIENCE,
        }
        self.place = DaemonPlace(str(self.home))

    def file(self, name: str) -> str:
        return str(self.project / "src" / name)

    def keep(self, memories: Sequence[Mapping[str, Any]]) -> None:
        """Import memories of this project."""
        lines = [json.dumps({"project": str(self.project), **memory}) for memory in memories]
        listed = self.project.parent / "memories.jsonl"
        listed.write_text("\n".join(lines))
        self.upwell("import", str(listed))

    def upwell(self, *args: str, input: bytes = b"") -> str:
        return self.both(*args, input=input)[0]

    def both(self, *args: str, input: bytes = b"", run_by: Sequence[str] = ()) -> tuple[str, str]:
        """stdout and stderr of a command that succeeds."""
        done = subprocess.run(
            [*run_by, sys.executable, "-P", "-m", "upwell", *args],
            input=input,
            env=self.environment,
            cwd=self.project,
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode(), done.stderr.decode()

    def refused(self, *args: str) -> str:
        """The error message of a failing command."""
        command = [sys.executable, "-P", "-m", "upwell", *args]
        done = subprocess.run(command, env=self.environment, capture_output=True, timeout=60)
        assert done.returncode != 0
        return done.stderr.decode()

    def start(self, run_by: Sequence[str] = ()) -> None:
        """Start the daemon as a hook would, and wait until it answers."""
        self.both("daemon", "start", run_by=run_by)
        assert self.daemon_answers(), "no daemon"

    def daemon_answers(self) -> bool:
        """Wait for the daemon to start; True when it answers, False after `START_SECONDS`."""
        deadline = time.monotonic() + START_SECONDS
        while not ((daemon := daemon_at(str(self.home))) and daemon.answers):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def stop(self) -> None:
        """End the daemon, and also one that a hook has just started and that does not listen
        yet. A daemon that is already ending has removed the file with its pid, so wait for it."""
        deadline = time.monotonic() + COMING_SECONDS
        while time.monotonic() < deadline:
            if daemon := daemon_at(str(self.home)):
                end(daemon)
            elif not os.path.exists(self.place.starting):
                return
            else:
                time.sleep(0.05)
        assert daemon_at(str(self.home)) is None, "the daemon did not end"

    def hook(
        self,
        *args: str,
        event: bytes | Mapping[str, Any],
        env: Mapping[str, str | None] | None = None,
    ) -> "Answer":
        """Run the hook on one event, as an agent does."""
        changed = {**self.environment, **(env or {})}
        body = event if isinstance(event, bytes) else json.dumps(event).encode()
        began = time.monotonic()
        done = subprocess.run(
            [*QUICK, *args],
            input=body,
            env={name: value for name, value in changed.items() if value is not None},
            cwd=self.project,
            capture_output=True,
            timeout=HANG_SECONDS,
        )
        return Answer(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


class Answer:
    """The outcome of a hook's process."""

    def __init__(self, code: int, out: bytes, err: bytes, seconds: float) -> None:
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    @property
    def json(self) -> dict[str, Any]:
        """The JSON object on stdout. Fails if the hook failed."""
        assert self.code == 0, self.err.decode()
        assert self.err == b""
        value = json.loads(self.out or b"{}")
        assert isinstance(value, dict)
        return value
