"""A transcript: the agent's texts, and a history that was rewritten."""

import json
from pathlib import Path

import pytest

from upwell.capture.sessions import has_lost_marks, written_in

BEGUN = '{"kind":"main"}\n{"$set":{"messages":[{"type":"user"}]}}\n'
TOLD = '{"type":"user","content":[{"text":"RULES: be kind"}]}\n'
NOTED = '{"type":"user","content":[{"text":"NOTES"}]}\n'
ANEW = '{"$set":{"messages":[{"type":"user","content":[{"text":"a summary"}]}]}}\n'
KEPT = '{"$set":{"messages":[{"type":"user","content":[{"text":"RULES: be kind"}]}]}}\n'


@pytest.mark.parametrize(
    ("text", "forgotten"),
    [
        (BEGUN, False),
        (BEGUN + TOLD, False),
        (BEGUN + TOLD + ANEW, True),
        (BEGUN + TOLD + KEPT, False),
        (BEGUN + TOLD + ANEW + TOLD, False),
        (BEGUN + TOLD + ANEW + TOLD + ANEW, True),
        (BEGUN + ANEW, False),
        (BEGUN + TOLD + NOTED + ANEW + NOTED, True),
        (TOLD.replace("RULES", ANEW.strip().replace('"', "'")), False),
        ("", False),
    ],
)
def test_memories_that_are_no_longer_in_the_history(
    tmp_path: Path, text: str, forgotten: bool
) -> None:
    chat = tmp_path / "chat.jsonl"
    chat.write_text(text)
    assert has_lost_marks(str(chat), ("RULES", "NOTES")) is forgotten


def test_a_file_that_is_not_the_users_transcript_gives_nothing(tmp_path: Path) -> None:
    chat = tmp_path / "chat.jsonl"
    chat.write_text(BEGUN + TOLD + ANEW)
    link = tmp_path / "link.jsonl"
    link.symlink_to(chat)
    for path in (str(link), str(tmp_path / "none.jsonl"), "relative.jsonl", ""):
        assert not has_lost_marks(path, ("RULES",))


def message(role: str, block: dict[str, object]) -> dict[str, object]:
    at = "2026-09-18T10:00:00.000Z"
    return {"type": role, "timestamp": at, "message": {"role": role, "content": [block]}}


def test_texts_that_the_agent_wrote_since_then(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    write = {"type": "tool_use", "id": "1", "name": "Write", "input": {"a": "b"}}
    lines = [
        {**message("assistant", {"type": "text", "text": "old"}), "timestamp": "2026-01-01T00:00"},
        message("assistant", {"type": "text", "text": "new"}),
        message("user", {"type": "text", "text": "not the agent"}),
        message("assistant", write),
        {"message": {"role": "assistant", "content": "without a time"}},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    since = 1_780_000_000.0
    assert [text for _, text in written_in(str(path), since)] == ["new", "b"]


def test_calls_of_codex_count_with_commands_as_text(tmp_path: Path) -> None:
    path = tmp_path / "rollout-1.jsonl"
    shell = {"type": "function_call", "name": "shell", "call_id": "1"}
    command = json.dumps({"command": ["bash", "-lc", "make dock"], "timeout_ms": 9})
    patch = {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin Patch"}
    lines = [{"payload": {**shell, "arguments": command}}, {"payload": patch}]
    path.write_text("\n".join(map(json.dumps, lines)))
    texts = [text for _, text in written_in(str(path), 0.0)]
    assert texts == ["make dock", "*** Begin Patch"]
