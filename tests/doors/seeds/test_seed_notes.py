"""Seed 001: short notes in `stm.json`. The tests of its rows in `tests/NAMES.md`."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Upwell
from tests.doors.address import Conversation
from tests.doors.reading import everything, texts
from tests.doors.seeds.rows import row

DAY = timedelta(days=1)


def found(result: dict[str, Any]) -> list[dict[str, Any]]:
    return list(json.loads(texts(result)[0]))


def added(agent: Conversation, content: str) -> str:
    return everything(agent.call("upwell__add_memory", content=content)).split("\n")[0]


def aged(home: Path, **ages: float) -> None:
    """Write `stm.json` with one note for each name, last viewed that many days ago."""
    now = datetime.now(UTC)
    notes = [
        {
            "id": name,
            "content": f"{name} rope",
            "created_at": (now - 400 * DAY).isoformat(),
            "viewed_at": (now - days * DAY).isoformat(),
        }
        for name, days in ages.items()
    ]
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "stm.json").write_text(json.dumps(notes))


def stored(home: Path) -> dict[str, dict[str, Any]]:
    return {note["id"]: note for note in json.loads((home / "stm.json").read_text())}


@row("`add_memory(content)`")
def test_a_note_is_added(agent: Conversation) -> None:
    identity = added(agent, "Bollards are painted on Mondays in src/bollard.py")
    (note,) = found(agent.call("upwell__search_memory", id=identity))
    assert note["content"] == "Bollards are painted on Mondays in src/bollard.py"


@row("`search_memory(query?, id?, date?)`, dates as YYYY-MM-DD")
def test_a_note_is_found_by_word_id_and_day(agent: Conversation) -> None:
    identity = added(agent, "Capstans squeak after rain in src/capstan.py")
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    searches: list[dict[str, str]] = [
        {"query": "capstans rain"},
        {"id": identity},
        {"id": identity, "date": today},
    ]
    for search in searches:
        notes = found(agent.call("upwell__search_memory", **search))
        assert [note["id"] for note in notes] == [identity]
    assert found(agent.call("upwell__search_memory", id=identity, date="2001-01-01")) == []


@row("`delete_memory(id)`")
def test_a_note_is_deleted(agent: Conversation) -> None:
    identity = added(agent, "Davits are oiled in src/davit.py")
    agent.call("upwell__delete_memory", id=identity)
    assert found(agent.call("upwell__search_memory", id=identity)) == []


@row("`clear_stm`")
def test_old_notes_are_cleared_and_no_tool_does_it(upwell: Upwell, home: Path) -> None:
    aged(home, old=36, new=1)
    assert upwell("stm", "clear").code == 0
    assert set(stored(home)) == {"new"}


@row("the model does not clear")
def test_there_is_no_tool_to_clear(agent: Conversation) -> None:
    tools = agent.post("tools/list", 1)[2]["result"]["tools"]
    assert not [tool["name"] for tool in tools if "clear" in tool["name"]]


@row("`stm.json`: `id`, `content`, `created_at`, `viewed_at`")
def test_the_file_has_the_four_keys_of_the_seed(upwell: Upwell, home: Path) -> None:
    identity = upwell("stm", "add", "Fenders are striped").line
    (note,) = json.loads((home / "stm.json").read_text())
    assert list(note) == ["id", "content", "created_at", "viewed_at"]
    assert note["id"] == identity
    assert note["created_at"] == note["viewed_at"]
    assert datetime.fromisoformat(note["created_at"]).utcoffset() == timedelta(0)


@row("35 days by `viewed_at`")
def test_a_note_stays_for_35_days_after_its_last_view(upwell: Upwell, home: Path) -> None:
    aged(home, kept=34.9, gone=35.1)
    upwell("stm", "clear")
    assert set(stored(home)) == {"kept"}


@row("3 results")
def test_a_search_gives_three_notes_at_most(upwell: Upwell, home: Path) -> None:
    aged(home, a=1, b=2, c=3, d=4)
    assert len(upwell("stm", "search", "rope", "--json").json) == 3


@row("most occurrences first")
def test_the_note_with_most_occurrences_comes_first(upwell: Upwell, home: Path) -> None:
    aged(home, once=1, twice=2)
    notes = json.loads((home / "stm.json").read_text())
    notes[1]["content"] = "rope, twice rope"
    (home / "stm.json").write_text(json.dumps(notes))
    assert upwell("stm", "search", "rope", "--json").json[0]["id"] == "twice"


@row("a search updates `viewed_at`")
@pytest.mark.parametrize(
    "command", [("stm", "search", "rope"), ("recall", "rope"), ("read", "stm:a")]
)
def test_an_explicit_search_counts_as_viewing(
    upwell: Upwell, home: Path, command: tuple[str, ...]
) -> None:
    aged(home, a=30)
    before = stored(home)["a"]["viewed_at"]
    assert "rope" in upwell(*command).out
    assert stored(home)["a"]["viewed_at"] > before


@row("a search by a tool updates `viewed_at`")
@pytest.mark.parametrize(
    ("tool", "argument"),
    [("search_memory", "query"), ("memory_search", "query"), ("memory_context", "message")],
)
def test_a_search_by_an_agent_counts_as_viewing(
    agent: Conversation, served: Path, tool: str, argument: str
) -> None:
    identity = added(agent, f"Gangways for {tool} are lifted at noon in src/gangway.py")
    notes = json.loads((served / "stm.json").read_text())
    for note in notes:
        note["viewed_at"] = "2026-01-01T00:00:00Z" if note["id"] == identity else note["viewed_at"]
    (served / "stm.json").write_text(json.dumps(notes))
    question = f"when are the gangways for {tool} lifted?"
    assert "noon" in everything(agent.call(f"upwell__{tool}", **{argument: question}))
    assert stored(served)[identity]["viewed_at"] > "2026-01-02"


@row("`STM_SHOW_STATUS`")
@pytest.mark.parametrize(("value", "shown"), [("TRUE", True), ("true", False), ("", False)])
def test_only_TRUE_shows_a_status(upwell: Upwell, home: Path, value: str, shown: bool) -> None:
    aged(home, old=36)
    env = {"STM_SHOW_STATUS": value}
    runs = [
        upwell("stm", "add", "Hawsers are coiled", env=env),
        upwell("stm", "search", "zeppelin", env=env),
        upwell("stm", "clear", env=env),
    ]
    assert [run.code for run in runs] == [0, 0, 0]
    assert ["STM entry added" in runs[0].err, "No matching STM" in runs[1].err] == [shown, shown]
    assert [bool(run.err) for run in runs] == [shown, shown, shown]
    assert [bool(run.out) for run in runs] == [True, False, False]


@row("status messages of the tools")
def test_the_tools_add_a_status(agent: Conversation) -> None:
    result = agent.call("upwell__add_memory", content="Jetties are swept in src/jetty.py")
    assert "STM entry added" in texts(result)
    assert "No matching STM entries found" in texts(
        agent.call("upwell__search_memory", query="zeppelin")
    )


@row("the project's `stm.json`")
def test_a_project_with_the_folder_keeps_its_own_file(
    upwell: Callable[..., Any], tmp_path: Path, home: Path
) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / ".upwell").mkdir()
    upwell("stm", "add", "Keels are scraped", cwd=project)
    assert "Keels" in (project / ".upwell" / "stm.json").read_text()
    assert not (home / "stm.json").exists()
