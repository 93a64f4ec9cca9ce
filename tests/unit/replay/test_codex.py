"""Codex: what the user typed, and how calls ended."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.replay import samples

from upwell.episodes.events import Kind, SessionEvent
from upwell.replay.transcripts import transcripts_at
from upwell.replay.transcripts.base import ReadTally

META = samples.codex_item(
    "11:00:00", "session_meta", id=samples.SESSION, cwd="/code/harbour", cli_version="0.171.0"
)
SKILL = "<skill>\n<name>release</name>\nAlways bump the version.\n</skill>"
AGENTS = "# AGENTS.md instructions for /code\n\n<INSTRUCTIONS>\nAlways test.\n</INSTRUCTIONS>"


def told(
    folder: Path, *items: dict[str, Any], start: int = 0, tally: ReadTally | None = None
) -> Any:
    path = samples.lines(folder / f"rollout-2026-01-05T11-00-00-{samples.SESSION}.jsonl", items)
    (transcript,) = transcripts_at([path])
    return list(transcript.events(start, tally))


def response(kind: str, **payload: Any) -> dict[str, Any]:
    return samples.codex_item("11:00:01", "response_item", type=kind, **payload)


def event(kind: str, **payload: Any) -> dict[str, Any]:
    return samples.codex_item("11:00:01", "event_msg", type=kind, **payload)


def completed(kind: str, **fields: Any) -> dict[str, Any]:
    return event("item_completed", item={"type": kind, **fields})


def message(*texts: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "input_text", "text": words} for words in texts]
    return response("message", role="user", content=content, **more)


def typed(words: str) -> dict[str, Any]:
    return completed("UserMessage", id="u1", content=[{"type": "text", "text": words}])


def prompts(folder: Path, *items: dict[str, Any]) -> list[str]:
    return [entry.text for entry in told(folder, META, *items) if entry.kind is Kind.PROMPT]


def calls(folder: Path, *items: dict[str, Any], start: int = 0) -> list[SessionEvent]:
    return [entry for entry in told(folder, META, *items, start=start) if entry.kind is Kind.TOOL]


@pytest.mark.parametrize("words", ["Fix it", SKILL, AGENTS, "[upwell] is broken", "Caveat: loud"])
def test_only_what_the_user_typed_is_a_prompt(tmp_path: Path, words: str) -> None:
    others = (message(AGENTS, SKILL), message("<subagent_notification>x</subagent_notification>"))
    for own in (typed(words), event("user_message", message=words)):
        assert prompts(tmp_path, *others, message(words), own, *others) == [words]


def test_a_prompt_that_is_recorded_in_both_ways_is_one(tmp_path: Path) -> None:
    both = [event("user_message", message="Go on"), typed("Go on")]
    said = response("message", role="assistant", content=[{"type": "output_text", "text": "Ok"}])
    assert prompts(tmp_path, *both) == ["Go on"]
    assert prompts(tmp_path, *both, typed("Go on")) == ["Go on", "Go on"]
    assert prompts(tmp_path, both[0], said, both[1]) == ["Go on", "Go on"]


def test_a_rollout_without_either_is_read_without_what_codex_adds(tmp_path: Path) -> None:
    assert prompts(tmp_path, message(AGENTS, SKILL), message(f"{SKILL}\nFix it")) == ["Fix it"]
    kinds = ["agents_md.instructions", "user.text"]
    assert prompts(tmp_path, message("Always test", SKILL, content_item_kinds=kinds)) == [SKILL]


@pytest.mark.parametrize(
    "source", [{"source": {"subagent": "review"}}, {"thread_source": "subagent"}]
)
def test_a_subagents_rollout_is_empty_from_every_offset(
    tmp_path: Path, source: dict[str, Any]
) -> None:
    meta = samples.codex_item("11:00:00", "session_meta", id="x", **source)
    assert told(tmp_path, meta, typed("Search")) == []
    assert told(tmp_path, meta, typed("Search"), start=len(json.dumps(meta)) + 1) == []


def execution(name: str, code: int | None = 0, **more: Any) -> dict[str, Any]:
    fields = {"status": "failed" if code else "completed", "exit_code": code, **more}
    command = ["/usr/bin/bash", "-lc", "make"]
    return completed(
        "CommandExecution", id=name, command=command, aggregated_output="built", **fields
    )


def called(name: str = "c1", tool: str = "exec_command", **given: Any) -> dict[str, Any]:
    arguments = json.dumps(given or {"cmd": "make"})
    return response("function_call", name=tool, arguments=arguments, call_id=name)


def output(text: Any, name: str = "c1") -> dict[str, Any]:
    return response("function_call_output", call_id=name, output=text)


EXITED = "Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code {}\nOutput:\n{}"


@pytest.mark.parametrize(
    ("items", "failed"),
    [
        ([called(), output(EXITED.format(0, "exit code: 1"))], [False]),
        ([called(), output(EXITED.format(2, "no rule"))], [True]),
        ([called(), execution("c1", 2), output(EXITED.format(2, "x"))], [True]),
        ([called(), output(EXITED.format(0, "x")), execution("c1", 0)], [False]),
        ([called(), event("exec_command_end", call_id="c1", exit_code=3), output("x")], [True]),
        ([called(), output("aborted by user after 3.1s")], [True]),
        ([called(), output("exec_command failed: no such file")], [True]),
        ([called(), output("exec command rejected by user")], []),
        ([called(), execution("c1", None, status="declined"), output("x")], []),
        ([called(), output(json.dumps({"output": "exit code 1", "metadata": {"exit_code": 0}}))],
         [False]),
        ([called(tool="read_note"), output("it says: exit code 1")], [False]),
        ([execution("e1", source="user_shell")], []),
        ([execution("e1", source="unified_exec_interaction")], []),
    ],
)  # fmt: skip
def test_a_call_is_told_once_with_its_exit_status(
    tmp_path: Path, items: list[dict[str, Any]], failed: list[bool]
) -> None:
    found = calls(tmp_path, *items)
    assert [entry.failed for entry in found] == failed
    assert all(entry.args.get("command") == "make" for entry in found if entry.tool == "Bash")


RUNNING = output("Wall time: 10 seconds\nProcess running with session ID 7\nOutput:\nhalf")
ASKED = called("c2", "write_stdin", session_id=7, chars="")


@pytest.mark.parametrize(
    ("items", "failed"),
    [
        ([], False),
        ([ASKED, output(EXITED.format(1, "x"), "c2")], True),
        ([ASKED, RUNNING, called("c3", "write_stdin", session_id=7), output(
            EXITED.format(1, "x"), "c3")], True),
        ([execution("c1", 1), ASKED, output(EXITED.format(1, "x"), "c2")], True),
    ],
)  # fmt: skip
def test_a_command_that_runs_on_is_told_when_it_ends(
    tmp_path: Path, items: list[dict[str, Any]], failed: bool
) -> None:
    (call,) = calls(tmp_path, called(), RUNNING, *items)
    assert (call.args["command"], call.failed) == ("make", failed)


def script(name: str = "s1") -> dict[str, Any]:
    return response("custom_tool_call", name="exec", call_id=name, input="await tools.x()")


def ended(words: str, name: str = "s1") -> dict[str, Any]:
    blocks = [{"type": "input_text", "text": words}]
    return response("custom_tool_call_output", call_id=name, output=blocks)


def test_the_calls_of_a_script_are_told_instead_of_it(tmp_path: Path) -> None:
    changes = {"/code/a.py": {"type": "update", "unified_diff": "@@"}}
    result = {"content": [{"type": "text", "text": "no"}], "isError": True}
    found = calls(
        tmp_path,
        script(),
        execution("exec-1", 3),
        completed("FileChange", id="exec-2", changes=changes, status="completed", stdout="M"),
        completed("McpToolCall", id="exec-3", server="up", tool="say", result=result),
        completed("CollabAgentToolCall", id="exec-4", tool="spawn_agent", prompt="Look"),
        ended("Script completed"),
        script("s2"),
        ended("Script failed\nScript error: blocked", "s2"),
    )
    assert [(call.tool, call.failed) for call in found] == [
        ("Bash", True),
        ("Edit", False),
        ("mcp__up__say", True),
        ("spawn_agent", False),
        ("exec", True),
    ]
    assert found[1].args["file_path"] == "/code/a.py"


def test_an_mcp_call_has_the_servers_name_and_is_told_once(tmp_path: Path) -> None:
    call = response("function_call", name="say", namespace="mcp__up", arguments="{}", call_id="c1")
    result = {"content": [{"type": "text", "text": "ahoy"}]}
    item = completed("McpToolCall", id="c1", server="up", tool="say", arguments={}, result=result)
    legacy = event(
        "mcp_tool_call_end",
        call_id="c1",
        invocation={"server": "up", "tool": "say", "arguments": {}},
        result={"Err": "gone"},
    )
    for told_by, failed in ((item, False), (legacy, True)):
        (found,) = calls(tmp_path, call, told_by, output("ahoy"))
        assert (found.tool, found.failed) == ("mcp__up__say", failed)


def test_a_search_of_the_web_is_told_once(tmp_path: Path) -> None:
    search = response("web_search_call", action={"type": "search", "query": "tides"})
    item = completed("WebSearch", id="ws_1", query="tides")
    assert len(calls(tmp_path, item, search)) == 1
    assert len(calls(tmp_path, search, item, search, item)) == 2


def test_records_of_an_unknown_kind_are_counted(tmp_path: Path) -> None:
    tally = ReadTally()
    items = (
        {"id": "x", "timestamp": "2025-05-01T00:00:00Z", "instructions": None},
        META,
        response("reasoning"),
        response("telepathy"),
        samples.codex_item("11:00:01", "aura", colour="blue"),
        completed("Hologram", id="h1"),
        completed("Plan", id="p1"),
    )
    told(tmp_path, *items, tally=tally)
    assert tally.unknown == {"telepathy": 1, "aura": 1, "completed Hologram": 1}
