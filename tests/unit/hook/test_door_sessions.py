"""Sessions that a host reports through a link, starts repeatedly, or ends."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.hook.test_door import RULE, door_with_a_rule

from upwell.ground.host_sessions import HostSessions
from upwell.ground.ledger import TtlStore
from upwell.hook.door import HookDoor, HookParts, TurnEnd
from upwell.hosts.events import EventKind, HostEvent
from upwell.surface.options import PipelineOptions, SurfaceOptions
from upwell.surface.pipeline import Surfacer
from upwell.testing import FakeRecall

AGENT, RESUMED_BY = 4_000_000, 4_000_001
START = {"sessionId": "s", "timestamp": 1, "cwd": "/p", "source": "new"}


def door_at(
    project: Path | None, turn_end: TurnEnd | None = None, **opt_ins: Any
) -> tuple[HookDoor, Surfacer]:
    ttl_store = TtlStore()
    rule = replace(RULE, project=str(project) if project else None)
    surfacer = Surfacer(
        FakeRecall(rules=[rule]), ttl_store, PipelineOptions(surface=SurfaceOptions(moments="all"))
    )
    sessions, chosen = HostSessions(ttl_store), HookParts(limit_seconds=5, **opt_ins)
    return HookDoor(surfacer, sessions, turn_end=turn_end, opt_ins=chosen), surfacer


async def started(door: HookDoor, parent: int, **more: Any) -> bool:
    event = json.dumps({**START, **more}).encode()
    answer = await door.answer("copilot", "sessionStart", event, parent=parent)
    return RULE.text.encode() in answer


@pytest.mark.parametrize("source", ["new", "startup", "resume"])
async def test_a_start_that_copilot_repeats_at_each_prompt_is_answered_once(source: str) -> None:
    door, _ = door_with_a_rule()
    assert await started(door, AGENT)
    ended = json.dumps({"sessionId": "s", "cwd": "/p", "reason": "complete"}).encode()
    await door.answer("copilot", "sessionEnd", ended, parent=AGENT)
    assert not await started(door, AGENT, source=source)
    assert not await started(door, AGENT, source=source)
    assert await started(door, RESUMED_BY, source="resume"), "another process lost the context"
    assert await started(door, AGENT, sessionId="t")


async def test_a_repeated_start_after_a_compaction_brings_the_rules_again() -> None:
    async def lose_context(event: HostEvent) -> None:
        if event.kind is EventKind.COMPACT:
            await surfacer.compacting(event.session)

    door, surfacer = door_at(None, lose_context)
    assert await started(door, AGENT)
    compacting = json.dumps({"sessionId": "s", "timestamp": 1, "cwd": "/p"}).encode()
    await door.answer("copilot", "preCompact", compacting, parent=AGENT)
    await door.aclose()
    assert await started(door, AGENT)


async def test_an_ended_session_is_not_joined_by_its_folder() -> None:
    door, sessions = door_with_a_rule()
    event = {"session_id": "s", "cwd": "/p", "hook_event_name": "SessionStart", "source": "startup"}
    await door.answer("claude", "", json.dumps(event).encode())
    await door.aclose()
    assert await sessions.joined("claude", AGENT, "/p") == "s"
    over = json.dumps({**event, "hook_event_name": "SessionEnd"}).encode()
    await door.answer("claude", "", over)
    await door.aclose()
    assert await sessions.joined("claude", AGENT, "/p") == ""
    await door.answer("claude", "", json.dumps(event).encode())
    await door.aclose()
    assert await sessions.joined("claude", AGENT, "/p") == "s"


async def test_a_turn_ends_in_the_real_folder(tmp_path: Path) -> None:
    (tmp_path / "real" / ".git").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    ended: list[HostEvent] = []

    async def turn_end(event: HostEvent) -> None:
        ended.append(event)

    door, _ = door_at(tmp_path / "real", turn_end)
    event = {"session_id": "s", "cwd": str(tmp_path / "link"), "hook_event_name": "Stop"}
    await door.answer("claude", "", json.dumps(event).encode())
    await door.aclose()
    assert [event.cwd for event in ended] == [str(tmp_path / "real")]


async def test_a_folder_is_excluded_by_the_name_that_the_host_gives_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "secret").symlink_to("real")
    asked: list[str | None] = []

    def is_excluded(cwd: str | None) -> bool:
        asked.append(cwd)
        return cwd == str(tmp_path / "secret")

    door, _ = door_at(tmp_path / "real", is_excluded=is_excluded)
    cwd = str(tmp_path / "secret")
    event = {"session_id": "s", "cwd": cwd, "hook_event_name": "SessionStart"}
    assert await door.answer("claude", "", json.dumps(event).encode()) == b"{}"
    assert asked == [cwd]
