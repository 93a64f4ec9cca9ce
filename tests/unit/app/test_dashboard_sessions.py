"""The list of sessions on the dashboard, and their timelines."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.app.test_past_sessions import TOKEN, pump_session
from tests.unit.replay import samples

from upwell.app import App, Settings, build
from upwell.app.dashboard.sessions import reading, session, sessionlist, sessions, timeline
from upwell.ground.types.cue import PROBE_SESSIONS, Cue
from upwell.ground.types.memory import Memory
from upwell.testing import ManualClock


async def listed(app: App) -> list[str]:
    return [session["id"] for session in (await sessions(app, {}))["sessions"]]


async def test_sessions_in_which_setup_tried_a_hook_are_not_listed(app: App) -> None:
    for name in (f"{PROBE_SESSIONS}1a2b", "monday"):
        await app.surfacer.surface(Cue(door="prompt", text="Where are prices?", session=name))
    assert await listed(app) == ["monday"]


async def test_a_call_of_the_gateway_does_not_take_the_agent_from_a_session(
    timed: App, clock: ManualClock
) -> None:
    prompt = Cue(door="prompt", text="Where are prices?", session="monday", host="claude")
    call = Cue(door="tool", tool="shop__prices", session="monday")
    for cue in (prompt, call):
        await timed.surfacer.surface(cue)
        await timed.surfacer.journal.flush()
        clock.advance(5)
    assert [event["host"] for event in await timed.surfacer.journal.latest(2)] == ["", "claude"]
    assert [entry["host"] for entry in (await sessions(timed, {}))["sessions"]] == ["claude"]


TOPICS = ("Paint the boat", "Mend the nets", "Count the crates", "Sail south", "Sell the fish")


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with one past session."""
    monkeypatch.setenv("HOME", str(tmp_path))
    pump_session(tmp_path, tmp_path / "harbour")
    return tmp_path


async def test_past_sessions_are_listed_once_they_are_read(user: Path, app: App) -> None:
    page = await sessions(app, {})
    assert (page["is_empty"], page["is_indexed"]) == (True, False)
    read = await reading(app, {"first": "1"})
    assert (read["has_read"], read["goes_on"], read["left"]) == (True, False, 0)
    assert (await reading(app, {}))["has_read"] is False
    await app.surfacer.surface(Cue(door="prompt", text="Where are prices?", session="monday"))
    page = await sessions(app, {})
    assert [entry["id"] for entry in page["sessions"]] == ["monday", samples.SESSION]
    assert page["sessions"][1]["first"] == "Why does the pump stall?"
    assert page["hosts"] == ["claude"]
    found = (await sessionlist(app, {"q": "pump stalls"}))["sessions"]
    assert [entry["id"] for entry in found] == [samples.SESSION]
    assert (await sessionlist(app, {"q": "pump", "host": "codex"}))["sessions"] == []


async def test_every_session_is_on_exactly_one_page(
    user: Path, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upwell.app.dashboard.sessions.PAGE", 2)
    folder = user / ".claude/projects/-code-harbour"
    for number in range(len(TOPICS)):
        question = samples.claude_record(
            "user", f"1{number}:30:00", TOPICS[number], sessionId=f"past-{number}"
        )
        samples.lines(folder / f"past-{number}.jsonl", [question])
    await reading(app, {})
    for name in ("monday", "tuesday", "past-3"):
        await app.surfacer.surface(Cue(door="prompt", text="Where are prices?", session=name))
    names: list[str] = []
    before = ""
    while page := await sessionlist(app, {"before": before} if before else {}):
        names += [entry["id"] for entry in page["sessions"]]
        before = page["next"]
        if not before:
            break
    assert sorted(names) == sorted(
        ["monday", "tuesday", samples.SESSION, *(f"past-{number}" for number in range(5))]
    )


async def test_a_timeline_has_the_steps_of_the_transcript_without_secrets(
    user: Path, app: App
) -> None:
    await reading(app, {})
    described = await session(app, {"id": samples.SESSION})
    assert (described["turns"], described["attended"]) == (1, False)
    (part,) = (await timeline(app, {"id": samples.SESSION}))["parts"]
    shown = [_text(item) for item in part["items"]]
    assert shown[:2] == ["make dok", "make dock PUMP=1"]
    assert part["items"][0]["step"].failed
    assert TOKEN not in str(part)
    unknown = await timeline(app, {"id": "nobody"})
    assert unknown["parts"] == [{"items": []}]


async def test_decisions_stand_at_the_steps_of_the_transcript(user: Path) -> None:
    clock = ManualClock(datetime.fromisoformat("2026-01-05T10:00:03Z").timestamp())
    app = await build(Settings(home=user / "home", environment={}, clock=clock))
    try:
        await reading(app, {})
        project = str(user / "harbour")
        await app.memory.add(Memory(text="The pump stalls when the inlet is blocked."))
        for cue in (
            Cue(door="prompt", text="Why does the pump stall?"),
            Cue(door="tool", tool="Bash", args={"command": "make dock PUMP=1"}),
        ):
            await app.surfacer.surface(
                replace(cue, session=samples.SESSION, cwd=project, host="claude")
            )
        (part,) = (await timeline(app, {"id": samples.SESSION}))["parts"]
        kinds = [item["kind"] for item in part["items"]]
        assert kinds.count("event") == 1
        (spoke,) = (item for item in part["items"] if item["kind"] == "event")
        assert "inlet is blocked" in spoke["memories"][0]["text"]
        silences = {_text(item): item["why"] for item in part["items"] if item["kind"] == "step"}
        assert silences["make dock PUMP=1"]
        assert not silences["make dok"]
        described = await session(app, {"id": samples.SESSION})
        assert (described["attended"], described["summary"]["said"]) == (True, 1)
    finally:
        await app.aclose()


def _text(item: Mapping[str, Any]) -> str:
    return str(item["step"].text)
