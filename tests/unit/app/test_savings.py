"""How much shortening would have saved on the results of past sessions."""

from pathlib import Path

import pytest

from upwell.app.shortening import Savings
from upwell.config import load
from upwell.episodes.events import Kind, SessionEvent
from upwell.ground.text.tokens import count

LONG = "\n".join(f"12:{n % 60:02d} worker-{n % 7} took job {n * 7919 % 10007}" for n in range(900))


def result(tool: str, out: str) -> SessionEvent:
    return SessionEvent(session="s", i=0, t=0.0, kind=Kind.TOOL, tool=tool, out=out, host="claude")


@pytest.fixture
def savings(tmp_path: Path) -> Savings:
    return Savings(load(home=tmp_path, environment={}))


def counts(savings: Savings, *events: SessionEvent) -> dict[str, int]:
    assert list(savings.watch(events)) == list(events)
    return savings.described()


def test_what_a_long_result_has_beyond_its_budget_is_saved(savings: Savings) -> None:
    found = counts(savings, result("Bash", LONG), result("Bash", "done"))
    assert found["tokens"] == count(LONG) + count("done")
    assert (found["results"], found["shortened"]) == (2, 1)
    assert count(LONG) - 2_200 < found["saved"] < count(LONG) - 2_000


def test_files_and_edits_stay_whole(savings: Savings) -> None:
    assert counts(savings, result("Read", LONG), result("Edit", LONG))["saved"] == 0


def test_a_prompt_is_no_result(savings: Savings) -> None:
    prompt = SessionEvent(session="s", i=0, t=0.0, kind=Kind.PROMPT, text=LONG)
    assert counts(savings, prompt) == {"results": 0, "shortened": 0, "tokens": 0, "saved": 0}
