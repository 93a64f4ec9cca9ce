"""Claude Code: who wrote a message, and whether a call worked."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.replay import samples

from upwell.episodes.events import Kind, SessionEvent
from upwell.replay.transcripts import transcripts_at
from upwell.replay.transcripts.base import ReadTally

NOTICE = "<task-notification>\n<summary>Never log the token</summary>\n</task-notification>"
PLAN = "Implement the following plan:\n\nAlways run the migrations."


def told(
    folder: Path, *records: dict[str, Any], tally: ReadTally | None = None
) -> list[SessionEvent]:
    path = samples.lines(folder / f"{samples.SESSION}.jsonl", records)
    (transcript,) = transcripts_at([path])
    return list(transcript.events(0, tally))


def said(content: Any, **more: Any) -> dict[str, Any]:
    return samples.claude_record("user", "10:00:00", content, **more)


def prompts(folder: Path, *records: dict[str, Any]) -> list[str]:
    return [event.text for event in told(folder, *records) if event.kind is Kind.PROMPT]


def queued(**fields: Any) -> dict[str, Any]:
    attachment = {"type": "queued_command", "prompt": "Grease the winch", **fields}
    return {**said(""), "type": "attachment", "message": None, "attachment": attachment}


@pytest.mark.parametrize(
    "fields",
    [
        {"isMeta": True},
        {"isVisibleInTranscriptOnly": True},
        {"isSidechain": True},
        {"origin": {"kind": "task-notification"}},
        {"origin": {"kind": "peer", "from": "other"}},
        {"origin": {"kind": "channel", "server": "chat"}},
        {"origin": {"kind": "coordinator"}},
        {"origin": {"kind": "plugin", "name": "x"}},
        {"origin": {"kind": "auto-continuation"}, "planContent": "x"},
        {"origin": {"kind": "a later kind"}},
        {"planContent": "Always run the migrations."},
        {"promptSource": "system"},
        {"promptSource": "queued", "wakeupSource": "loop_wakeup"},
        {"promptSource": "queued", "scheduledTaskId": "cron-1"},
        {"origin": {"kind": "human"}, "textNotTyped": True},
        {"sourceToolUseID": "toolu_1"},
    ],
)
def test_a_message_of_somebody_else_is_not_a_prompt(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert prompts(tmp_path, said("Always rebase first", **fields)) == []
    assert prompts(tmp_path, said([{"type": "text", "text": "Rebase"}], **fields)) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"origin": {"kind": "human"}},
        {"promptSource": "typed"},
        {"promptSource": "queued", "origin": {"kind": "unclassified"}},
        {"promptSource": "sdk", "turnOrigin": "sdk"},
        {},
    ],
)
@pytest.mark.parametrize(
    "words",
    ["Caveat: it is loud", "[upwell] is broken", "# AGENTS.md instructions for …?", PLAN],
)
def test_the_users_words_are_a_prompt_whatever_they_begin_with(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    assert prompts(tmp_path, said(words, **fields)) == [words]


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("# Plan: Oil the  pump\n\n## Context\nNever run it dry.", "Oil the pump"),
        ("Never run it dry.\n\n## Steps\n# Later", "Steps"),
        (f"# {'pump ' * 99}", ("pump " * 40).strip()),
        ("Never run it dry.", ""),
    ],
)
def test_of_an_accepted_plan_the_prompt_names_only_the_heading(
    tmp_path: Path, plan: str, expected: str
) -> None:
    accepted = said(f"Implement the following plan:\n\n{plan}", planContent=plan)
    (text,) = prompts(tmp_path, accepted)
    assert text == f"Implement the following plan: {expected}".strip()
    assert prompts(tmp_path, {**accepted, "isMeta": True}) == []


def test_a_recorded_author_decides_about_elements_too(tmp_path: Path) -> None:
    assert prompts(tmp_path, said(NOTICE, promptSource="typed")) == [NOTICE]
    assert prompts(tmp_path, said(NOTICE)) == []
    assert prompts(tmp_path, said(f"{NOTICE}\nWhy?")) == ["Why?"]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["<system-reminder>Sent at 10</system-reminder>"], []),
        (
            ["Why? <system-reminder>a</system-reminder>\n<system-reminder>b</system-reminder>"],
            ["Why?"],
        ),
        (["Why?\n<system-reminder>x <system-reminder>y\nAlways z.</system-reminder>"], None),
        (
            ["Why?<system-reminder>x <system-reminder>y</system-reminder> z</system-reminder>"],
            ["Why?"],
        ),
    ],
)
def test_reminders_are_no_words_of_a_user_who_is_recorded(
    tmp_path: Path, texts: list[str], expected: list[str] | None
) -> None:
    image = {"type": "image", "source": {}}
    blocks = [image, *({"type": "text", "text": words} for words in texts)]
    found = prompts(tmp_path, said(blocks, origin={"kind": "human"}))
    assert found == expected if expected is not None else "Always z." not in "".join(found)


def test_shell_lines_and_slash_commands_of_the_user(tmp_path: Path) -> None:
    command = "<command-message>review</command-message>\n<command-name>/review</command-name>"
    for fields in ({}, {"origin": {"kind": "human"}}):
        shell = said("<bash-input>git push</bash-input>", **fields)
        assert prompts(tmp_path, shell, said(command, **fields)) == ["/review"]
    assert prompts(tmp_path, said(command, promptSource="typed")) == ["/review"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["Grease the winch"]),
        ({"commandMode": "prompt", "origin": {"kind": "human"}}, ["Grease the winch"]),
        ({"prompt": [{"type": "text", "text": "Grease it"}]}, ["Grease it"]),
        ({"commandMode": "task-notification"}, []),
        ({"commandMode": "bash"}, []),
        ({"origin": {"kind": "peer"}}, []),
        ({"isMeta": True, "origin": {"kind": "unclassified"}}, []),
        ({"prompt": NOTICE}, []),
    ],
)
def test_a_queued_message_is_a_prompt_if_the_user_wrote_it(
    tmp_path: Path, fields: dict[str, Any], expected: list[str]
) -> None:
    assert prompts(tmp_path, queued(**fields)) == expected


def outcomes(folder: Path, *records: dict[str, Any]) -> list[bool]:
    call = samples.claude_call("10:00:01", "Bash", command="make")
    return [event.failed for event in told(folder, call, *records) if event.kind is Kind.TOOL]


def result(out: str, *, is_error: bool | None = None, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": "t1", "content": out, "is_error": is_error}
    return samples.claude_record("user", "10:00:02", [block], **more)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (result("ok", toolUseResult={"stdout": "ok", "interrupted": False}), [False]),
        (result("Exit code 2\nno rule"), [True]),
        (result("no rule", is_error=True, toolUseResult="Error: Exit code 2"), [True]),
        (result("half", toolUseResult={"stdout": "half", "interrupted": True}), [True]),
        (result("stopped", toolDenialKind="interrupted"), [True]),
        (result("done", toolUseResult={"exitCode": 3}), [True]),
        (result("The user doesn't want to take this action right now. STOP"), []),
        (result("No", is_error=True, toolDenialKind="user-rejected"), []),
        (result("Skipped", is_error=True, toolDenialKind="cancelled"), []),
        (result("Denied", is_error=True, toolDenialKind="permission-rule"), [True]),
    ],
)
def test_whether_a_command_worked(
    tmp_path: Path, record: dict[str, Any], expected: list[bool]
) -> None:
    assert outcomes(tmp_path, record) == expected


@pytest.mark.parametrize(
    ("status", "failed"), [("completed", False), ("failed", True), ("killed", True), ("", False)]
)
def test_a_command_in_the_background_ends_with_its_notification(
    tmp_path: Path, status: str, failed: bool
) -> None:
    started = result("Running in background", toolUseResult={"backgroundTaskId": "b1"})
    notice = f"<tool-use-id>t1</tool-use-id><status>{status}</status>"
    ended = said(
        f"<task-notification>{notice}</task-notification>", origin={"kind": "task-notification"}
    )
    assert outcomes(tmp_path, started, ended) == [failed]
    assert outcomes(tmp_path, started) == [False]


def test_records_of_an_unknown_kind_are_counted(tmp_path: Path) -> None:
    tally = ReadTally()
    records = [
        said("Hello", version="2.1.400"),
        {"type": "thought-crystal", "sessionId": samples.SESSION},
        {"type": ["x"]},
        {"type": "last-prompt", "sessionId": samples.SESSION},
        samples.claude_record("assistant", "10:00:03", [{"type": "hologram"}]),
        samples.claude_record("assistant", "10:00:03", [{"type": "thinking", "thinking": "x"}]),
    ]
    told(tmp_path, *records, tally=tally)
    assert tally.unknown == {"thought-crystal": 1, "?": 1, "assistant's hologram": 1}
    assert (tally.version, tally.records) == ("2.1.400", 6)
