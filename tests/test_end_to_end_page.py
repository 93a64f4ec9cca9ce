"""docs/end-to-end.md is true: its symbols exist, its trails are short, and a real call, cue and
hook event run through the functions in the order of the page."""

import ast
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.conftest import Upwell
from tests.doors.peer import Peer
from upwell.hook.control import daemon_at

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "upwell"
PAGE = (ROOT / "docs" / "end-to-end.md").read_text(encoding="utf-8")
TRACED = [sys.executable, str(ROOT / "tests" / "traced.py")]
TRAILS = ("A call", "A cue", "A hook event")
MAX_FILES = 8
DAEMON_SECONDS = 30.0
SYMBOL = re.compile(r"`([\w/]+\.py): ([\w.]+)`")
FILE = re.compile(r"`([\w/]+\.py)\b")


def numbered(title: str) -> list[str]:
    """The text of every numbered item of a section."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^\d+\. .*(?:\n +.*)*", section, flags=re.MULTILINE)


def items(title: str) -> list[list[str]]:
    """The pointers of every numbered item of a section, as `file.py: symbol`. The first one is the
    item's step. The others are functions that this step starts, and that may run at the same time
    as the next steps.
    """
    return [[": ".join(pointer) for pointer in SYMBOL.findall(item)] for item in numbered(title)]


def trail(title: str) -> list[str]:
    return [pointers[0] for pointers in items(title)]


def defined(file: str) -> set[str]:
    tree = ast.parse((SRC / file).read_text(encoding="utf-8"))
    return set(qualified(tree.body, ""))


def qualified(body: Sequence[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from qualified(node.body, f"{prefix}{node.name}.")


def test_every_symbol_on_the_page_exists() -> None:
    pointers = SYMBOL.findall(PAGE)
    assert len(pointers) > 20
    assert [f"{file}: {name}" for file, name in pointers if name not in defined(file)] == []


@pytest.mark.parametrize("title", TRAILS)
def test_a_trail_crosses_few_files(title: str) -> None:
    """Every file that an item names counts, with or without a symbol."""
    files = {file for item in numbered(title) for file in FILE.findall(item)}
    assert 3 < len(files) <= MAX_FILES, sorted(files)


def first_missing(steps: Sequence[str], record: Sequence[str]) -> str | None:
    """The first step that `record` does not have after the steps before it; None if it has all,
    in order. The record is read from the last time that `steps[0]` ran."""
    if steps[0] not in record:
        return steps[0]
    last = len(record) - 1 - record[::-1].index(steps[0])
    rest = iter(record[last:])
    return next((step for step in steps if step not in rest), None)


def test_the_check_notices_a_wrong_order() -> None:
    record = ["a", "c", "a", "b", "c"]
    assert first_missing(["a", "b", "c"], record) is None
    assert first_missing(["a", "c", "b"], record) == "b"
    assert first_missing(["d"], record) == "d"


def read(record: Path) -> list[str]:
    return record.read_text(encoding="utf-8").splitlines()


@pytest.fixture
def project(tmp_path: Path, upwell: Upwell) -> Path:
    """A repository with a long file, and a memory about that file."""
    project = tmp_path / "shop"
    (project / ".git").mkdir(parents=True)
    (project / "src").mkdir()
    lines = [f"def refund_{n}(charge):\n    return charge.total * {n}\n" for n in range(1_500)]
    (project / "src" / "payments.py").write_text("\n".join(lines))
    text = "Retries of one charge reuse its idempotency key"
    upwell("remember", text, "--path", "src/payments.py", cwd=project)
    return project


def test_a_call_and_its_cue_follow_the_page(
    project: Path, tmp_path: Path, environment: Mapping[str, str], upwell: Upwell
) -> None:
    server = [sys.executable, "-m", "upwell.demo.server", str(project)]
    assert upwell("add", "shop", "--", *server).code == 0
    record, patient = tmp_path / "record", {**environment, "UPWELL_SURFACE__RACE_MS": "8000"}
    with Peer([*TRACED, str(record), "serve"], env=patient, cwd=project) as agent:
        agent.hello()
        agent.wait_for_tools("shop__read_file")
        result = agent.call("shop__read_file", path="src/payments.py")
        agent.process.stdin.close()
        agent.process.wait(20)
    everything = json.dumps(result)
    assert "Shortened from" in everything
    assert "idempotency key" in everything
    assert first_missing(trail("A call"), read(record)) is None
    for pointers in items("A call"):
        assert first_missing(pointers, read(record)) is None
    assert first_missing(trail("A cue"), read(record)) is None


def test_a_hook_event_follows_the_page(
    project: Path, home: Path, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    patient = {**environment, "UPWELL_HOOK__PROMPT_MS": "8000"}
    records = tmp_path / "daemon-record", tmp_path / "client-record"
    daemon = subprocess.Popen(
        [*TRACED, str(records[0]), "daemon", "run"], env=patient, stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + DAEMON_SECONDS
        while not ((result := daemon_at(str(home))) and result.answers):
            assert time.monotonic() < deadline, "no daemon"
            time.sleep(0.05)
        event = {
            "hook_event_name": "UserPromptSubmit",
            "session_id": "s1",
            "cwd": str(project),
            "prompt": "why did a retry in src/payments.py charge twice, idempotency key or not?",
        }
        done = subprocess.run(
            [*TRACED, str(records[1]), "hook", "claude"],
            input=json.dumps(event).encode(),
            env=patient,
            capture_output=True,
            timeout=30,
        )
        assert b"idempotency key" in done.stdout
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(20)
    steps = trail("A hook event")
    in_client = [step for step in steps if step.startswith("hook/client.py")]
    assert first_missing(in_client, read(records[1])) is None
    assert first_missing(steps[len(in_client) :], read(records[0])) is None
