"""The first event of a home, before any daemon runs: plain memories or none, never twice."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.hook_events import HOSTS
from tests.doors.hooked import House

NEWS = "The nightly invoice export moved to bucket harbour-seven in March"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("cold"))
    words = "oak elm ash fir yew bay fig nut gum box plum pear lime kiwi date palm teak".split()
    house.keep(
        [
            {"id": "invoice", "text": NEWS},
            {"id": "old", "text": "The tram timetable parser lives in module carriage"},
            {"id": "new", "text": "The tram timetable parser is service carriage-two",
             "upwell": {"supersedes": "old"}},
            {"id": "gone", "text": "The zeppelin hangar door code was rotated",
             "upwell": {"expires_at": 1_577_836_800.0}},
            {"id": "theirs", "text": "The submarine ballast pump is controlled by topic depth",
             "project": "/somewhere/else"},
            {"id": "wide", "text": "A sweep over all files",
             "paths": [f"src/{word}.py" for word in words]},
            {"id": "focus", "text": "Teak tables are oiled in batches of nine",
             "paths": ["src/teak.py"]},
            *({"text": f"Note about {word} trees and their bark"} for word in words),
        ]
    )  # fmt: skip
    yield house
    house.stop()


def cold(house: House, said: str, session: str = "c1") -> str:
    """The answer to a prompt while nothing runs and nothing is started."""
    Path(house.place.starting).parent.mkdir(mode=0o700, exist_ok=True)
    Path(house.place.starting).touch()
    prompt = HOSTS["claude"].prompt
    assert prompt is not None
    event = {**prompt(str(house.project), said), "session_id": session}
    answer = house.hook("claude", event=event)
    Path(house.place.starting).unlink()
    return json.dumps(answer.json)


def test_unrelated_prompts_get_nothing(house: House) -> None:
    for said in (
        "thanks, looks good",
        "please fix the failing unit tests in the parser",
        "What is the capital of France and how many people live there?",
        "refactor this function so that it is easier to read",
        "which trees are there?",
    ):
        assert cold(house, said) == "{}", said


@pytest.mark.parametrize(
    "said",
    [
        "Where does the zeppelin hangar door code come from?",
        "How is the submarine ballast pump controlled?",
        "Which module does the tram timetable parser live in?",
    ],
    ids=["expired", "of another project", "superseded"],
)
def test_what_the_daemon_would_not_say_is_not_said(house: House, said: str) -> None:
    assert "carriage of" not in cold(house, said)
    assert "code was rotated" not in cold(house, said)
    assert "ballast" not in cold(house, said)
    assert "lives in module carriage" not in cold(house, said)


def test_where_surfacing_is_configured_it_keeps_silent(house: House) -> None:
    config = house.home / "config.toml"
    config.write_text("[surface]\nmin_score = 0.99\n")
    try:
        assert cold(house, "Where did the nightly invoice export bucket move in March?") == "{}"
    finally:
        config.unlink()


def test_a_plain_match_is_said_once_and_the_daemon_knows(house: House) -> None:
    asked = "Where did the nightly invoice export bucket move in March?"
    first = cold(house, asked)
    assert NEWS in first
    assert "upwell-memories" in first
    assert cold(house, asked, "c2") == "{}"
    explained = json.loads(house.upwell("explain", "--json"))["decisions"]
    assert [one["memories"][0][0] for one in explained if one["outcome"] == "surfaced"] == [
        "invoice"
    ]
    house.start()
    prompt = HOSTS["claude"].prompt
    assert prompt is not None
    assert NEWS not in str(house.hook("claude", event=prompt(str(house.project), asked)).json)
    house.stop()


def test_a_file_brings_up_what_is_about_it_and_little_else(house: House) -> None:
    Path(house.place.starting).touch()
    event = HOSTS["claude"].tool(str(house.project), house.file("teak.py"))
    said = str(house.hook("claude", event=event).json)
    Path(house.place.starting).unlink()
    assert "batches of nine" in said
    assert "sweep" not in said


def test_what_it_decided_is_counted_and_explained_once(house: House) -> None:
    def beside() -> dict[tuple[str, str], int]:
        shown = json.loads(house.upwell("stats", "--json"))["beside"]
        return {(one["door"], one["tool"]): one["decisions"] for one in shown}

    def explained() -> int:
        return len(json.loads(house.upwell("explain", "-n", "500", "--json"))["decisions"])

    counted, known = beside(), explained()
    spoke = json.loads(house.upwell("stats", "--json"))["surfaced"]
    house.keep(
        [{"id": "dory", "text": "The dory regatta trophy is engraved by the harbour master"}]
    )
    assert "engraved" in cold(house, "Who has the dory regatta trophy engraved?", "c7")
    assert cold(house, "Who has the dory regatta trophy engraved?", "c8") == "{}"
    assert cold(house, "What is the capital of France these days?", "c7") == "{}"
    Path(house.place.starting).touch()
    read = HOSTS["claude"].tool(str(house.project), house.file("nothing_known.py"))
    house.hook("claude", event=read)
    Path(house.place.starting).unlink()
    spool = house.home / "cold.jsonl"
    assert spool.stat().st_mode & 0o777 == 0o600
    assert "regatta" not in spool.read_text(), "no query is kept"
    after = beside()
    assert after["prompt", ""] == counted.get(("prompt", ""), 0) + 3
    assert after["tool", "Read"] == counted.get(("tool", "Read"), 0) + 1
    assert json.loads(house.upwell("stats", "--json"))["surfaced"] == spoke + 1
    assert explained() == known + 4
    assert not spool.exists()


def test_a_spool_that_is_damaged_costs_what_is_damaged(house: House) -> None:
    spool = house.home / "cold.jsonl"
    good = {"id": "k_1", "at": 1e9, "door": "prompt", "outcome": "no_candidates", "memories": []}
    odd = [b"{", b"[]", b'{"id": 3}', json.dumps({**good, "outcome": "x"}).encode(), b"\xff"]
    before = json.loads(house.upwell("stats", "--json"))["decisions"]
    spool.write_bytes(b"\n".join([*odd, json.dumps(good).encode(), b'{"id": "k_2", "at"']))
    assert json.loads(house.upwell("stats", "--json"))["decisions"] == before + 1
    assert not list(house.home.glob("cold.jsonl*"))
