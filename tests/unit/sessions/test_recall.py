"""Recall of the states of past sessions, from `sessions.db`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from upwell.ground.clock import Deadline
from upwell.ground.types.memory import Query, QuerySource, Scope
from upwell.sessions.index import SessionIndex
from upwell.sessions.recall import QUIET_SECONDS, States
from upwell.sessions.turns import FileChange, Turn
from upwell.testing import ManualClock

PROMPT = "why does the harbour pump stall again"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000.0)


@pytest.fixture
async def index(tmp_path: Path, clock: ManualClock) -> AsyncIterator[SessionIndex]:
    opened = SessionIndex(tmp_path / "sessions.db", lambda: [], clock=clock)
    yield opened
    await opened.aclose()


@pytest.fixture
async def states(tmp_path: Path, clock: ManualClock) -> AsyncIterator[States]:
    opened = States(tmp_path / "sessions.db", clock=clock)
    yield opened
    await opened.aclose()


@pytest.fixture
def project(tmp_path: Path) -> str:
    (tmp_path / "harbour" / ".git").mkdir(parents=True)
    return str(tmp_path / "harbour")


def turn(session: str, project: str, at: float, question: str = "The harbour pump stalls") -> Turn:
    made = Turn(session=session, host="claude", number=0, question=question, cwd=project)
    made.began = made.ended = at
    made.remarks.append("A shell blocked the inlet of the pump.")
    return made


async def found(states: States, project: str | None, session: str = "now", **more) -> list[str]:
    query = Query(
        texts=(PROMPT,),
        scope=Scope(project=project),
        source=QuerySource.MESSAGE,
        awaited=False,
        session=session,
        prompts=1,
        **more,
    )
    hits = (await states.search(query, Deadline.after(30))).hits
    return [hit.memory.id for hit in hits if hit.score > 0.5]


async def test_without_an_index_there_are_no_states(states: States, project: str) -> None:
    assert await found(states, project) == []
    assert (await states.ping()).ok
    assert await states.get("state:a") is None


async def test_a_session_of_the_project_that_is_over_is_found(
    states: States, index: SessionIndex, project: str
) -> None:
    await index.add([turn("a", project, 990_000.0)])
    assert await found(states, project) == ["state:a"]
    assert await found(states, f"{project}-other") == []
    assert await found(states, None) == []
    assert await found(states, project, session="a") == []
    memory = await states.get("state:a")
    assert memory is not None
    assert "A shell blocked the inlet" in memory.text


async def test_a_tool_call_gets_no_state(states: States, index: SessionIndex, project: str) -> None:
    await index.add([turn("a", project, 990_000.0)])
    query = Query(texts=(PROMPT,), scope=Scope(project=project), source=QuerySource.TEMPLATE)
    assert not (await states.search(query, Deadline.after(30))).hits


async def test_a_session_that_may_go_on_has_no_state_yet(
    states: States, index: SessionIndex, project: str, clock: ManualClock, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"session":"a","i":0,"t":999990,"kind":"prompt","text":"The harbour pump stalls",'
        f'"cwd":"{project}"}}\n'
    )
    await index.read_one(str(path))
    assert await found(states, project) == []
    await index.close("a")
    assert await found(states, project) == ["state:a"]


async def test_a_quiet_session_counts_as_over(
    states: States, index: SessionIndex, project: str, clock: ManualClock, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"session":"a","i":0,"t":999990,"kind":"prompt","text":"The harbour pump stalls",'
        f'"cwd":"{project}"}}\n'
    )
    await index.read_one(str(path))
    clock.advance(QUIET_SECONDS)
    assert await found(states, project) == ["state:a"]


async def test_a_later_session_on_the_same_files_supersedes(
    states: States, index: SessionIndex, project: str
) -> None:
    for name, at in (("a", 990_000.0), ("b", 995_000.0)):
        made = turn(name, project, at)
        made.changes.append(FileChange(f"{project}/pump.py"))
        await index.add([made])
    assert await found(states, project) == ["state:b"]
