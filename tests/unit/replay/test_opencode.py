"""OpenCode's databases, as 1.18.33 and 2.0 write them."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from upwell.episodes.events import Kind, SessionEvent
from upwell.replay.transcripts import format_named
from upwell.replay.transcripts.base import ReadTally, UnreadableTranscript

AT = 1_795_168_800_000
V1 = """
CREATE TABLE session (id, parent_id, directory, version, time_created);
CREATE TABLE message (id, session_id, time_created, data);
CREATE TABLE part (id, message_id, data);
"""
V2 = """
CREATE TABLE session_v2 (id, parent_id, directory, version, time_created);
CREATE TABLE session_message (id, session_id, type, seq, time_created, data);
"""


def database(folder: Path, schema: str) -> sqlite3.Connection:
    db = sqlite3.connect(folder / "opencode.db")
    db.executescript(schema)
    return db


def old_session(
    db: sqlite3.Connection, name: str, messages: Iterable[tuple[Any, list[dict[str, Any]]]]
) -> None:
    db.execute("INSERT INTO session VALUES (?, NULL, '/code', '1.18.33', ?)", (name, AT))
    for number, (info, parts) in enumerate(messages):
        fields = {"role": info} if isinstance(info, str) else info
        own = f"{name}-{number}"
        row = (own, name, AT + number, json.dumps(fields))
        db.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)
        for order, part in enumerate(parts):
            row = (f"{own}-{order}", own, json.dumps(part))
            db.execute("INSERT INTO part VALUES (?, ?, ?)", row)


def new_session(
    db: sqlite3.Connection, name: str, messages: Iterable[tuple[str, Mapping[str, Any]]]
) -> None:
    db.execute("INSERT INTO session_v2 VALUES (?, NULL, '/code', '2.0.14', ?)", (name, AT))
    for number, (kind, data) in enumerate(messages):
        row = (f"{name}-{number}", name, kind, number, AT + number, json.dumps(data))
        db.execute("INSERT INTO session_message VALUES (?, ?, ?, ?, ?, ?)", row)


def read(folder: Path, tally: ReadTally | None = None) -> list[SessionEvent]:
    events = format_named("opencode").read(folder / "opencode.db", 0, tally or ReadTally())
    return [event for event in events if event.kind not in (Kind.START, Kind.END)]


def bash(output: str, /, status: str = "completed", **state: Any) -> dict[str, Any]:
    shape = {"status": status, "input": {"command": "make"}, "output": output, **state}
    return {"type": "tool", "tool": "bash", "state": shape}


STOPPED = "half\n\n<shell_metadata>\nUser aborted the command\n</shell_metadata>"


@pytest.mark.parametrize(
    ("part", "failed"),
    [
        (bash("no rule", metadata={"exit": 2}), True),
        (bash("Command exited with code 2.", metadata={"exit": 0}), False),
        (bash(STOPPED, metadata={"exit": None}), True),
        (bash(STOPPED, metadata={"output": "half"}), True),
        (bash("", "error", error="Tool execution aborted", metadata={"interrupted": True}), True),
        (bash("ok", metadata={}), False),
    ],
)
def test_the_exit_status_says_whether_a_command_failed(
    tmp_path: Path, part: dict[str, Any], failed: bool
) -> None:
    with closing(database(tmp_path, V1)) as db:
        old_session(db, "ses_1", [("assistant", [part])])
        db.commit()
    (event,) = read(tmp_path)
    assert (event.tool, event.failed) == ("Bash", failed)


def test_only_the_users_own_parts_are_prompts(tmp_path: Path) -> None:
    refused = "The user rejected permission to use this specific tool call."
    messages = [
        ("user", [{"type": "text", "text": '"Why does the crane stop?"'}]),
        ("user", [{"type": "text", "text": "a file", "synthetic": True}, {"type": "file"}]),
        ("user", [{"type": "text", "text": "for me", "ignored": True}]),
        ("user", [{"type": "subtask", "prompt": "Look", "agent": "x"}, {"type": "agent"}]),
        ("assistant", [bash("", "error", error=refused), {"type": "reasoning", "text": "Hm"}]),
        ({"role": "assistant", "summary": True}, [{"type": "text", "text": "So far: …"}]),
        ("assistant", [{"type": "text", "text": "It is gone."}, {"type": "compaction"}]),
    ]
    with closing(database(tmp_path, V1)) as db:
        old_session(db, "ses_1", messages)
        db.commit()
    tally = ReadTally()
    assert [event.text or str(event.kind) for event in read(tmp_path, tally)] == [
        "Why does the crane stop?",
        "It is gone.",
        "compact",
    ]
    assert (tally.records, tally.unknown, tally.version) == (11, {}, "1.18.33")


def shell(state: Mapping[str, Any]) -> dict[str, Any]:
    shape = {"input": {"command": "make"}, **state}
    return {"type": "tool", "id": "p", "name": "shell", "state": shape, "time": {"completed": AT}}


def blocks(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def test_the_messages_of_version_2_are_read(tmp_path: Path) -> None:
    content = [
        {"type": "reasoning", "text": "Hm"},
        shell({"status": "completed", "content": blocks("no rule"), "metadata": {"exit": 2}}),
        shell({"status": "completed", "content": blocks("x", "Command exited with code 3.")}),
        shell({"status": "completed", "content": blocks("ok", "Command exited with code 0.")}),
        shell({"status": "completed", "content": blocks("…"), "metadata": {"timeout": True}}),
        shell({"status": "error", "error": {"type": "x", "message": "no shell"}}),
        shell({"status": "streaming"}),
        {"type": "text", "text": "The rule is missing."},
    ]
    messages = [
        ("user", {"text": "Why does it fail?", "time": {"created": AT}}),
        ("synthetic", {"text": "a notice"}),
        ("skill", {"text": "Always paint"}),
        ("assistant", {"content": content}),
        (
            "shell",
            {"command": "git push", "status": "exited", "exit": 1, "output": {"output": "no"}},
        ),
        ("compaction", {"status": "failed"}),
        ("compaction", {"status": "completed", "summary": "so far"}),
        ("idle", {"outcome": "succeeded"}),
    ]
    with closing(database(tmp_path, V2)) as db:
        new_session(db, "ses_2", messages)
        db.commit()
    tally = ReadTally()
    events = read(tmp_path, tally)
    assert [event.text or event.tool or str(event.kind) for event in events] == [
        "Why does it fail?",
        *["Bash"] * 5,
        "The rule is missing.",
        "Bash",
        "compact",
    ]
    assert [event.failed for event in events if event.tool] == [True, True, False, True, True, True]
    assert (tally.records, tally.unknown, tally.version) == (16, {}, "2.0.14")


def test_each_session_of_an_upgraded_database_is_read_once(tmp_path: Path) -> None:
    words = [("user", [{"type": "text", "text": "old"}])]
    with closing(database(tmp_path, V1 + V2)) as db:
        old_session(db, "ses_1", words)
        old_session(db, "ses_2", words)
        old_session(db, "ses_3", words)
        new_session(db, "ses_2", [("user", {"text": "copied"})])
        new_session(db, "ses_3", [])
        new_session(db, "ses_4", [("user", {"text": "new"})])
        db.commit()
    found = {(event.session, event.text) for event in read(tmp_path)}
    assert found == {("ses_1", "old"), ("ses_2", "copied"), ("ses_3", "old"), ("ses_4", "new")}


def test_a_database_of_an_unknown_version_is_named(tmp_path: Path) -> None:
    database(tmp_path, "CREATE TABLE session_v3 (id)").close()
    with pytest.raises(UnreadableTranscript, match="this version of OpenCode is not supported"):
        read(tmp_path)


def test_unknown_parts_and_messages_are_counted(tmp_path: Path) -> None:
    with closing(database(tmp_path, V1 + V2)) as db:
        old_session(db, "ses_1", [("assistant", [{"type": "hologram"}, bash("", "paused")])])
        content = [{"type": "hologram"}, {"type": "text", "text": "Done."}]
        new_session(db, "ses_2", [("teleport", {}), ("assistant", {"content": content})])
        db.commit()
    tally = ReadTally()
    read(tmp_path, tally)
    expected = {"hologram": 1, "tool: paused": 1, "teleport": 1, "assistant: hologram": 1}
    assert tally.unknown == expected


def test_memories_of_upwell_are_not_part_of_a_result(tmp_path: Path) -> None:
    added = '\n\n<upwell-memories id="s_1">\n- a memory\n</upwell-memories>'
    with closing(database(tmp_path, V1)) as db:
        old_session(db, "ses_1", [("assistant", [bash(f"ok{added}", metadata={"exit": 0})])])
        db.commit()
    (event,) = read(tmp_path)
    assert event.out.strip() == "ok"
