"""The judge behind real hooks: a slow verdict delays nobody and comes with the next event."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.hook_events import HOSTS
from tests.doors.hooked import PATIENCE, House
from tests.scripted_model import ScriptedModel, naming, serving

FERRY = "The ferry timetable is published on Mondays by the harbour master"
IN_TIME = dict.fromkeys(PATIENCE)


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with serving(ScriptedModel(naming("harbour master"), seconds=1.0)) as scripted:
        yield scripted


@pytest.fixture
def house(tmp_path: Path, model: ScriptedModel) -> Iterator[House]:
    house = House(tmp_path)
    house.home.mkdir(mode=0o700)
    (house.home / "config.toml").write_text(
        f'[llm]\nbase_url = "{model.address}"\nmodel = "scripted"\n[surface]\njudge = true\n'
    )
    house.keep([{"id": "ferry", "text": FERRY}])
    house.start()
    yield house
    house.stop()


def test_a_slow_verdict_comes_with_the_next_event(house: House, model: ScriptedModel) -> None:
    host, project = HOSTS["claude"], str(house.project)
    assert host.prompt is not None
    prompt = host.prompt(project, "Who publishes the ferry timetable?")
    call = host.tool(project, house.file("quay.py"))
    events = [{**event, "session_id": "s"} for event in (prompt, call, call)]
    house.hook("claude", event={**events[1], "session_id": "warm"})
    first = house.hook("claude", event=events[0], env=IN_TIME)
    assert first.json == {}
    time.sleep(2.0)
    assert FERRY in str(house.hook("claude", event=events[1]).json)
    assert FERRY not in str(house.hook("claude", event=events[2]).json)
    time.sleep(1.0)
    judge = json.loads(house.upwell("stats", "--json"))["judge"]
    # On a busy machine, the hook may send a late prompt twice.
    assert judge["asked"] == judge["chosen"] == len(model.requests) > 0
    assert "scripted answers in" in house.upwell("doctor")
