"""An agent from npm with upwell's hooks, in a home of its own, with a scripted model."""

import json
import os
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.doors.hooked import House
from tests.doors.test_hook_http import free_port
from tests.live.install import newer
from tests.live.model import Model, Script

RULE = "The colour of the day is ultramarine"
FILE = "The tide gauge client retries with the same idempotency key"
PROMPT = "The lighthouse lens rotation is serviced every Tuesday at 06:40"
RUN_SECONDS = 180


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which agents have a newer version, at the end of `make live`."""
    is_live = terminalreporter.config.getoption("markexpr") == "live"
    for line in newer() if is_live and terminalreporter.stats.get("passed") else ():
        terminalreporter.write_line(f"{line}: see tests/live/install.py, then make live-fixtures")


class Stage:
    """A house with a pinned rule, a memory about `src/gauge.py` and one that a prompt brings up."""

    def __init__(self, folder: Path) -> None:
        self.house = House(folder)
        self.folder = folder
        gauge = Path(self.house.file("gauge.py"))
        gauge.write_text("def gauge():\n    return 3\n")
        os.utime(gauge, (0, 0))
        subprocess.run(["git", "init", "-q", self.house.project], check=True)
        others = [
            {"text": f"Note {number}: the {word} of the {entry} was changed"}
            for number, word in enumerate("maps paint rivers ladders engines forms".split())
            for entry in "kitchen garden cellar attic".split()
        ]
        stored = [
            {"id": "file", "text": FILE, "paths": ["src/gauge.py"], "created_at": "2026-01-02"},
            {"id": "prompt", "text": PROMPT, "created_at": "2026-01-02"},
        ]
        self.house.keep([*others, *stored])
        self.house.upwell("remember", "--pin", RULE)

    def run(
        self,
        command: Sequence[str],
        model: Model,
        env: Mapping[str, str],
        *,
        cwd: Path | None = None,
    ) -> str:
        """Run an agent to its end, and return its output. Its requests to other machines go to the
        model as well, which records and refuses them."""
        done = subprocess.run(
            command,
            env={**self.house.environment, **fenced(model), **env},
            cwd=cwd or self.house.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=RUN_SECONDS,
        )
        assert done.returncode == 0, done.stderr.decode()[-2000:] + done.stdout.decode()[-2000:]
        return done.stdout.decode()

    def start_http(self) -> None:
        """Start the daemon, and wait until it accepts hooks over HTTP, which it does a second after
        its start. The scripted model is faster than that."""
        port = free_port()
        (self.house.home / "config.toml").write_text(f"hook.port = {port}\n")
        self.house.start()
        deadline = time.monotonic() + RUN_SECONDS
        while not _listens(port):
            assert time.monotonic() < deadline, "no HTTP"
            time.sleep(0.05)

    @property
    def recorder(self) -> str:
        """A foreign hook that records every event."""
        return f"(cat; echo) >> {shlex.quote(str(self.folder / 'events.jsonl'))}"

    @property
    def events(self) -> list[dict[str, Any]]:
        """The recorded events, in order of arrival."""
        lines = (self.folder / "events.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines if line.strip()]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def fenced(model: Model) -> dict[str, str]:
    """Proxy variables: what an agent requests from other machines goes to the model instead."""
    proxies = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), model.url)
    return {**proxies, "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.house.stop()


@pytest.fixture
def playing() -> Iterator[Callable[[Script], Model]]:
    """`playing(script)`: a model with this script, on loopback."""
    models: list[Model] = []

    def play(script: Script) -> Model:
        models.append(Model(script).__enter__())
        return models[-1]

    yield play
    for model in models:
        model.__exit__()
