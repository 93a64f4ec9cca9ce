"""The entry point: quick help, and a hook client that imports next to nothing."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping

import pytest

from tests.conftest import Upwell
from upwell.cli.main import PLACES

HEAVY = {
    *("pydantic", "click", "rich", "mcp", "sqlite3", "msgspec", "orjson", "tomllib"),
    *("asyncio", "re2", "opentelemetry", "pydantic_core", "anyio", "logging", "dataclasses"),
}
HELP_RATIO = 3
"""What `--help` may take, which loads every command, compared with importing click."""
EVENT = b'{"hook_event_name":"Notification","message":"waiting"}'
"""An event that upwell does not answer, so that no daemon is started."""


def cpu_of(command: list[str], env: Mapping[str, str]) -> float:
    """User + system seconds of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=env, capture_output=True, timeout=30)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_is_quick(environment: Mapping[str, str]) -> None:
    python = sys.executable
    runs = [
        (
            cpu_of([python, "-m", "upwell", "--help"], environment),
            cpu_of([python, "-c", "import click"], environment),
        )
        for _ in range(5)
    ]
    help_seconds, click_seconds = map(min, zip(*runs, strict=True))
    assert help_seconds <= HELP_RATIO * click_seconds


def imported(environment: Mapping[str, str], *args: str) -> set[str]:
    """Names of the modules that a run imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "upwell", *args],
        input=EVENT,
        env=environment,
        capture_output=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr.decode()
    lines = done.stderr.decode().splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


def test_the_hook_imports_next_to_nothing(environment: Mapping[str, str]) -> None:
    modules = imported(environment, "hook", "claude")
    tops = {name.partition(".")[0] for name in modules}
    assert tops & HEAVY == set()
    ours = {name for name in modules if name.startswith("upwell")}
    quick = {"upwell.hook", "upwell.hook.client", "upwell.hook.place"}
    assert ours <= {"upwell", "upwell.__main__", *quick}


def test_the_gate_notices_a_heavy_import(environment: Mapping[str, str]) -> None:
    assert "click" in imported(environment, "--version")


def test_a_command_loads_no_other_command(environment: Mapping[str, str]) -> None:
    code = (
        "import sys; from upwell.cli.main import main; "
        "main(['recall', '--help']); print('MODULES', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=30
    )
    modules = set(done.stdout.partition("MODULES ")[2].split())
    commands = {f"upwell.cli.{place.partition('.')[0]}" for place in PLACES.values()}
    assert modules & commands == {"upwell.cli.memories"}
    assert modules & {"typer", "pydantic", "asyncio", "upwell.app"} == set()


def test_importing_upwell_costs_nothing(environment: Mapping[str, str]) -> None:
    code = "import sys, upwell; print(*(m for m in sys.modules if m.startswith('upwell')))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=30
    )
    assert done.stdout.split() == ["upwell"]


STDIN = [
    EVENT,
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"\x00",
    b"[" * 100_000,
    b'{"session_id":"../../etc"}',
    b"x" * 2_000_000,
]


@pytest.mark.parametrize("stdin", STDIN, ids=range(len(STDIN)))
def test_the_hook_is_harmless(upwell: Upwell, stdin: bytes) -> None:
    done = upwell("hook", "claude", "PreToolUse", input=stdin)
    assert done.code == 0
    assert done.out.strip() in ("", "{}")
    assert "Traceback" not in done.err


def test_the_hook_does_not_wait_for_a_host_that_never_closes_stdin(
    environment: Mapping[str, str],
) -> None:
    read, write = os.pipe()
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "upwell", "hook", "claude"],
            stdin=read,
            env=environment,
            capture_output=True,
            timeout=10,
        )
    finally:
        os.close(read)
        os.close(write)
    assert done.returncode == 0
    assert time.monotonic() - began < 3


def test_module_and_script_are_the_same(environment: Mapping[str, str]) -> None:
    script = os.path.join(os.path.dirname(sys.executable), "upwell")
    outs = [
        subprocess.run([*start, "--version"], env=environment, capture_output=True, timeout=30)
        for start in ([sys.executable, "-m", "upwell"], [script])
    ]
    assert outs[0].stdout == outs[1].stdout
    assert outs[0].stdout.startswith(b"upwell ")
