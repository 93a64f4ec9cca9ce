"""Events recorded from real hosts (`tests/doors/recorded`): each is understood or ignored."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.doors.hook_events import RECORDED, recorded, recordings

from upwell.ground.host_sessions import outermost, within
from upwell.hook.client import IGNORED_TOOLS
from upwell.hosts import HOSTS
from upwell.hosts.events import EventKind, HostEvent

CWD = "/home/ada/tide"
ALL = [
    pytest.param(file.stem, name, event, id=f"{file.stem} {name} {place}")
    for file in sorted(RECORDED.glob("*.jsonl"))
    for place, (name, event) in enumerate(recordings(file.stem, CWD))
]


def read(host: str, name: str, event: Mapping[str, Any]) -> HostEvent | None:
    return HOSTS[host].events.read(name, event)


@pytest.mark.parametrize(("host", "name", "event"), ALL)
def test_every_recorded_event_is_understood_or_ignored(
    host: str, name: str, event: Mapping[str, Any]
) -> None:
    result = read(host, name, event)
    called = event.get("tool_name") or event.get("toolName")
    if name not in HOSTS[host].events.kinds:
        assert result is None
    elif result is None:
        announced = event.get("trigger") == "auto"
        made_up = "<task-notification>" in str(event)
        assert called in IGNORED_TOOLS | {"task", "grep"} or made_up or announced
    else:
        assert result.session
        assert result.cwd == CWD
        assert result.kind is HOSTS[host].events.kinds[name]
        if result.kind is EventKind.TOOL:
            assert result.tool in ("Read", "Bash", "Grep", "Glob", "LS")
            assert result.args
            assert result.reply_chars


def test_claude_code_reports_subagents_separately() -> None:
    main = read("claude", "UserPromptSubmit", recorded("claude", "UserPromptSubmit", CWD))
    events = [event for _, event in recordings("claude", CWD) if event.get("agent_type")]
    inner = [result for event in events if (result := read("claude", "", event))]
    assert main is not None
    assert [result.kind for result in inner] == [EventKind.SESSION, EventKind.TOOL, EventKind.END]
    assert {result.session for result in inner} == {within(main.session, inner[0].agent)}
    assert inner[0].text == "subagent"
    assert inner[-1].text == "That is all."
    assert inner[-1].transcript.endswith(f"/subagents/agent-{inner[0].agent}.jsonl")


def test_copilot_reports_subagents_separately() -> None:
    collected = [read("copilot", name, event) for name, event in recordings("copilot", CWD)]
    outer = {entry.session for entry in collected if entry and not entry.agent}
    inner = {entry.session for entry in collected if entry and entry.agent}
    (main,) = outer
    assert {outermost(session) for session in inner} == {main}
    assert {entry.kind for entry in collected if entry and entry.agent} == {
        EventKind.PROMPT,
        EventKind.TOOL,
        EventKind.STOP,
    }


def test_the_end_of_a_turn_of_copilot_names_the_transcript() -> None:
    """A subagent's turn names its parent's transcript, which is read when the parent's ends."""
    stops = [event for name, event in recordings("copilot", CWD) if name == "agentStop"]
    ends = [result for event in stops if (result := read("copilot", "agentStop", event))]
    named = [bool(result.transcript) for result in ends]
    assert named == [not result.agent for result in ends]
    assert True in named
    assert all(result.transcript in str(stops) for result in ends)


def test_some_hosts_restore_the_context_of_a_resumed_session() -> None:
    claude = [event for name, event in recordings("claude", CWD) if name == "SessionStart"]
    assert [result.text for event in claude if (result := read("claude", "", event))] == [
        "startup",
        "resume",
        "compact",
    ]
    copilot = [event for name, event in recordings("copilot", CWD) if name == "sessionStart"]
    assert [event["source"] for event in copilot] == ["new", "resume"]
    assert {
        result.text for event in copilot if (result := read("copilot", "sessionStart", event))
    } == {"startup"}


def test_a_failed_tool_reports_its_arguments() -> None:
    failed = read("claude", "", recorded("claude", "PostToolUseFailure", CWD))
    assert failed is not None
    assert (failed.tool, failed.args) == ("Bash", {"command": "false"})
    assert failed.reply is None


def test_an_answer_that_claude_code_stored_on_disk_is_not_replaced() -> None:
    replies = [event for _, event in recordings("claude", CWD) if "tool_response" in event]
    stored = [reply for reply in replies if "persistedOutputPath" in reply["tool_response"]]
    assert [result.reply for event in stored if (result := read("claude", "", event))] == [None]


def test_codex_compacts_by_itself_and_restores_hook_context() -> None:
    collected = [read("codex", name, event) for name, event in recordings("codex", CWD)]
    kinds = [entry.kind for entry in collected if entry]
    assert kinds[:5] == ["session", "prompt", "tool", "compact", "session"]
    assert [entry.text for entry in collected if entry and entry.kind is EventKind.SESSION] == [
        "startup",
        "compact",
        "resume",
    ]


def test_gemini_announces_compressions_and_repeats_hook_context() -> None:
    events = list(recordings("gemini", CWD))
    prompts = [event["prompt"] for name, event in events if name == "BeforeAgent"]
    assert prompts[0].startswith("<hook_context>&lt;upwell-memories")
    collected = [read("gemini", name, event) for name, event in events]
    asked = [entry.text for entry in collected if entry and entry.kind is EventKind.PROMPT]
    assert asked == ["When does the harbour tide gauge calibration run?"]
    triggers = [event["trigger"] for name, event in events if name == "PreCompress"]
    assert triggers == ["auto", "auto", "manual"]
    assert sum(entry.kind is EventKind.COMPACT for entry in collected if entry) == 1
    over = next(entry for entry in collected if entry and entry.kind is EventKind.STOP)
    assert not over.reports_compactions
    resumed = read("gemini", "SessionStart", {**events[0][1], "source": "resume"})
    assert resumed
    assert resumed.text == "startup", "a resumed session has lost its first context"
