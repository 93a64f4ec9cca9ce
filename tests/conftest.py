"""A home of its own for every test, and the real command line as a subprocess."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOORS = ROOT / "tests/doors"
SLOW_PATHS = (
    ROOT / "tests/browser",
    ROOT / "tests/faults",
    ROOT / "tests/properties/test_compress_hostile.py",
    ROOT / "tests/unit/memory/team/test_snapshot.py",
    ROOT / "tests/unit/memory/test_relocation.py",
    DOORS / "seeds",
)
"""Chromium, injected faults, a test for each name of tests/NAMES.md, and other tests that take ten
seconds or more per file.
"""
NIGHTLY_PATHS = (
    ROOT / "tests/browser/test_size.py",
    DOORS / "test_clock_skew.py",
    DOORS / "test_many_gateways.py",
    DOORS / "test_soak.py",
)
"""Long days, large homes and hundreds of rounds, which take minutes; `make nightly` runs them."""
CLI_DEADLINE = 60
SLOW_DOORS = frozenset(
    """
    ask_agent attacks capture cli cli_compress cli_context cli_entries cli_memory clock_skew
    dashboard delivery demo docs_commands documents drills entry excluded faults first_start
    first_steps fit floods folder full_disk given_back guards hook_cold hook_compress hook_events
    hook_faults hook_http hook_sessions hook_setup hostile_client hostile_memory hostile_server
    hostile_team
    http_behind http_eras http_front http_resume hygiene inbox issuer judge launcher learning
    lessons life local_copy login ltm many_tools meaning memory_faults metrics mirrors
    move_attacks moving_in moving_in_real names notes odd_exchanges past_sessions postgres
    principals promises qmd real_servers reload replay replay_judge replicas resources review
    clock_jumps rules same_decision setup setup_lessons setup_replay setup_servers slow_model
    slow_start start supervision surface team_by_token terminal_escapes tracing undo upgrade
    variables whose_question wild_server wrong_settings footprint
    """.split()
)
"""Door tests that take ten seconds or more per file; `make test-slow` and CI run them."""


@dataclass(frozen=True)
class Done:
    """The output and exit status of a finished command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, f"exit {self.code}: {self.err}"
        return json.loads(self.out)

    @property
    def line(self) -> str:
        """The only line it printed."""
        assert self.code == 0, f"exit {self.code}: {self.err}"
        (line,) = self.out.splitlines()
        return line


def pytest_configure() -> None:
    """Let the programs under test heed SIGHUP and SIGINT under `nohup make test &`, which ignores
    both. A child inherits an ignored signal, but not a handler, so install handlers here."""
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.hookimpl(tryfirst=True)  # before pytest applies `-m`
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow door tests. If `UPWELL_SECOND_TRY` is set, as in CI, a failed test gets a
    second try. pytest lists it as RERUN; the test or the product has a bug all the same.
    """
    for item in items:
        is_slow_door = item.path.parent == DOORS and (
            item.path.stem.removeprefix("test_") in SLOW_DOORS
        )
        is_nightly = item.path in NIGHTLY_PATHS
        if is_nightly:
            item.add_marker(pytest.mark.nightly)
        if is_nightly or is_slow_door or any(item.path.is_relative_to(p) for p in SLOW_PATHS):
            item.add_marker(pytest.mark.slow)
        if os.environ.get("UPWELL_SECOND_TRY"):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "upwell-home"


@pytest.fixture
def environment(tmp_path: Path, home: Path) -> Mapping[str, str]:
    """A clean environment, without any variable of the person who runs the tests."""
    user = tmp_path / "user"
    user.mkdir()
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(user),
        "UPWELL_HOME": str(home),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
    }


Upwell = Callable[..., Done]


@pytest.fixture
def upwell(environment: Mapping[str, str], tmp_path: Path) -> Upwell:
    """`upwell("recall", "tides")` runs the command line; `input` is bytes or text for stdin."""

    def run(
        *args: str,
        input: bytes | str = b"",
        env: Mapping[str, str] | None = None,
        cwd: Path = tmp_path,
    ) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "upwell", *args],
            input=input.encode() if isinstance(input, str) else input,
            env={**environment, **(env or {})},
            cwd=cwd,
            capture_output=True,
            timeout=CLI_DEADLINE,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode(errors="replace"))

    return run
