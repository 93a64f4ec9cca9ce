"""Lessons through the real `claude` and `codex`, with upwell's hooks installed, before a scripted
model: what is stored, and that a run neither teaches, nor lasts, nor starts another."""

import json
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.doors.hook_events import claude_like
from tests.doors.test_lessons import EVIL, GOOD, LESSONS, ORDER, listed, transcript
from tests.live.conftest import Stage, fenced
from tests.live.install import command
from tests.live.model import Model
from tests.live.talk import Call, Said
from tests.live.test_headless import SETUPS, User
from upwell.ground.pause import HEADLESS_FOLDER

pytestmark = pytest.mark.live
AGENTS = ("claude", "codex")


class Writer(Model):
    """A model that answers with lessons, or with nothing until it is released."""

    def __init__(self) -> None:
        super().__init__({})
        self.released = threading.Event()
        self.released.set()
        self.asked = threading.Event()

    def _next(self, said: Sequence[Said]) -> Call | str:
        self.asked.set()
        self.released.wait(60)
        return "\n".join(map(json.dumps, LESSONS))


@pytest.fixture
def writer() -> Iterator[Writer]:
    with Writer() as model:
        yield model
        model.released.set()


Prepared = Callable[[str], Stage]


@pytest.fixture
def prepared(stage: Stage, writer: Writer) -> Prepared:
    """`prepared(name)`: a stage on which this agent is on the PATH, with upwell's hooks."""

    def prepare(name: str) -> Stage:
        house = stage.house
        user = User(Path(house.environment["HOME"]), writer)
        (user.home / "marks").mkdir()
        SETUPS[name](user)
        program = stage.folder / "bin" / name
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {shlex.join(command(name))} "$@"\n')
        program.chmod(0o755)
        path = f"{program.parent}:{house.environment['PATH']}"
        house.environment |= {"PATH": path, **fenced(writer), **user.variables}
        house.upwell("hook", "install", name, "--apply")
        (house.home / "config.toml").write_text('lessons.model = "agent"\n')
        return stage

    return prepare


def session_of(name: str, stage: Stage) -> Path:
    """The transcript of a past session of the agent. Codex's is in upwell's own format, which
    names the agent."""
    path = transcript(stage.house)
    if name == "claude":
        return path
    events = stage.house.upwell("replay", "--events", str(path)).replace(
        '"host": "claude"', '"host": "codex"'
    )
    path.write_text(events)
    return path


def learn(stage: Stage, path: Path, *options: str) -> Mapping[str, Any]:
    words = ("learn", "sessions", "--lessons", "--json", *options, str(path))
    result: Mapping[str, Any] = json.loads(stage.house.upwell(*words))
    return result


def lessons_asked(writer: Writer) -> int:
    return len(writer.about("Write the lessons of this session"))


@pytest.mark.parametrize("name", AGENTS)
def test_the_agent_that_held_a_session_writes_its_lessons(
    prepared: Prepared, writer: Writer, name: str
) -> None:
    stage = prepared(name)
    gain = learn(stage, session_of(name, stage))
    assert (gain["read"], gain["kept"], gain["faults"]) == (1, 2, [])
    assert gain["dropped"] == {"never_run": 1, "orders": 1, "not_the_users": 1}
    texts = [row["text"] for row in listed(stage.house)]
    assert GOOD in texts
    assert not any(EVIL in text or ORDER in text for text in texts)
    assert lessons_asked(writer) == 1


@pytest.mark.parametrize("name", AGENTS)
def test_a_run_teaches_nothing_and_starts_nothing(
    prepared: Prepared, writer: Writer, name: str
) -> None:
    stage = prepared(name)
    stage.house.start()
    learn(stage, session_of(name, stage))
    assert json.loads(stage.house.upwell("explain", "--json"))["decisions"] == []
    assert not (stage.house.home / HEADLESS_FOLDER).exists()
    again = json.loads(stage.house.upwell("learn", "sessions", "--lessons", "--json"))
    assert again["read"] == 0
    assert lessons_asked(writer) == 1
    assert list((Path(stage.house.environment["HOME"]) / "marks").iterdir()) == []


@pytest.mark.parametrize("name", AGENTS)
def test_beyond_the_budget_nobody_is_asked(prepared: Prepared, writer: Writer, name: str) -> None:
    stage = prepared(name)
    gain = learn(stage, session_of(name, stage), "--max-tokens", "100")
    assert gain["skipped"] == {"beyond the budget": 1}
    assert writer.heard == []


@pytest.mark.parametrize("name", AGENTS)
def test_a_daemon_that_stops_ends_the_run(prepared: Prepared, writer: Writer, name: str) -> None:
    stage = prepared(name)
    path = session_of(name, stage)
    writer.released.clear()
    stage.house.start()
    event = claude_like("s7", str(stage.house.project), "SessionEnd", reason="exit")
    stage.house.hook("claude", event={**event, "transcript_path": str(path)})
    assert writer.asked.wait(60)
    assert agents(stage) != []
    stage.house.upwell("daemon", "stop")
    deadline = time.monotonic() + 20
    while agents(stage) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert agents(stage) == []
    assert listed(stage.house) == []
    writer.released.set()
    stage.house.start()
    deadline = time.monotonic() + 60
    while not listed(stage.house) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert GOOD in [row["text"] for row in listed(stage.house)], "the session was still due"


def agents(stage: Stage) -> list[int]:
    """The processes that run in the folder of our own runs."""
    folder = str(stage.house.home / HEADLESS_FOLDER)
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            cwd = (process / "cwd").readlink()
        except OSError:
            continue
        if str(cwd).startswith(folder):
            found.append(int(process.name))
    return found
