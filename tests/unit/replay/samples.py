"""Small transcripts in the shapes that hosts write."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

SESSION = "97259dc5-90f1-4e92-b3e2-6ba4449b9d70"


def lines(path: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def whole(path: Path, value: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def claude_record(kind: str, at: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content}
    own = {"cwd": "/code/harbour", "sessionId": SESSION, "uuid": at}
    return {"type": kind, "timestamp": f"2026-01-05T{at}Z", "message": message, **own, **more}


def claude_call(at: str, name: str, call: str = "t1", **given: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "id": call, "name": name, "input": given}
    return claude_record("assistant", at, [block])


def claude_result(at: str, out: Any, call: str = "t1", **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": out, **more}
    return claude_record("user", at, [block])


def claude(folder: Path) -> Path:
    reminder = "<system-reminder>be kind</system-reminder>"
    command = "<command-name>/review</command-name>\n<command-args>the pump</command-args>"
    records = [
        {"type": "summary", "summary": "Pumps", "leafUuid": "x"},
        claude_record("user", "10:00:00", f"Why does the pump stall?{reminder}"),
        claude_record("assistant", "10:00:01", [{"type": "text", "text": "I look."}]),
        claude_call("10:00:02", "Read", file_path="/code/harbour/pump.py"),
        claude_result("10:00:03", [{"type": "text", "text": "def pump(): ..."}]),
        claude_call("10:00:04", "Bash", "t2", command="make test"),
        claude_result("10:00:05", "Exit code 2", "t2", is_error=True),
        claude_record("user", "10:00:06", "who am I", isSidechain=True),
        claude_record("user", "10:00:07", [{"type": "text", "text": "a skill"}], isMeta=True),
        {"type": "system", "subtype": "compact_boundary", "timestamp": "2026-01-05T10:01:00Z"},
        claude_record("user", "10:01:01", "This session is being…", isCompactSummary=True),
        claude_record("user", "10:02:00", command),
        claude_record("user", "10:03:00", "[Request interrupted by user]"),
    ]
    return lines(folder / ".claude/projects/-code-harbour" / f"{SESSION}.jsonl", records)


def codex_item(at: str, kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-01-05T{at}Z", "type": kind, "payload": payload}


def codex(folder: Path) -> Path:
    output = json.dumps({"output": "2 failed", "metadata": {"exit_code": 1}})
    context = {"type": "input_text", "text": "<environment_context>zsh</environment_context>"}
    asked = {"type": "input_text", "text": "Fix the tide table"}
    options = json.dumps({"command": ["bash", "-lc", "pytest -q"]})
    patch = "*** Begin Patch\n*** Update File: src/tide.py\n@@\n-1\n+2\n*** End Patch"
    texts = [{"type": "output_text", "text": "Done."}]
    records = [
        codex_item("11:00:00", "session_meta", id=SESSION, cwd="/code/harbour", source="cli"),
        codex_item("11:00:01", "response_item", type="message", role="user", content=[context]),
        codex_item("11:00:02", "response_item", type="message", role="user", content=[asked]),
        codex_item("11:00:02", "event_msg", type="user_message", message="Fix the tide table"),
        codex_item(
            "11:00:03",
            "response_item",
            type="function_call",
            name="shell",
            arguments=options,
            call_id="c1",
        ),
        codex_item(
            "11:00:04", "response_item", type="function_call_output", call_id="c1", output=output
        ),
        codex_item(
            "11:00:05",
            "response_item",
            type="custom_tool_call",
            name="apply_patch",
            input=patch,
            call_id="c2",
        ),
        codex_item(
            "11:00:06", "response_item", type="custom_tool_call_output", call_id="c2", output="ok"
        ),
        codex_item("11:00:07", "response_item", type="message", role="assistant", content=texts),
        codex_item("11:00:07", "event_msg", type="agent_message", message="Done."),
        codex_item("11:00:08", "compacted", message="so far", replacement_history=[]),
        codex_item("11:00:08", "event_msg", type="context_compacted"),
    ]
    name = f"rollout-2026-01-05T11-00-00-{SESSION}.jsonl"
    return lines(folder / ".codex/sessions/2026/01/05" / name, records)


def gemini_messages() -> list[dict[str, Any]]:
    response = {"functionResponse": {"id": "g1", "name": "x", "response": {"output": "no buoys"}}}
    call = {
        "id": "g1",
        "name": "search_file_content",
        "args": {"pattern": "buoy"},
        "status": "success",
        "result": [response],
        "timestamp": "2026-01-05T12:00:02Z",
    }
    cancelled = {"id": "g2", "name": "write_file", "args": {}, "status": "cancelled"}
    asked = "Where are the buoys?\n--- Content from referenced files ---\nlong"
    return [
        {"id": "1", "timestamp": "2026-01-05T12:00:00Z", "type": "user", "content": asked},
        {
            "id": "2",
            "timestamp": "2026-01-05T12:00:01Z",
            "type": "gemini",
            "content": "I search.",
            "toolCalls": [call, cancelled],
        },
        {"id": "3", "timestamp": "2026-01-05T12:00:03Z", "type": "info", "content": "update"},
    ]


def gemini(folder: Path) -> Path:
    project = folder / ".gemini/tmp/harbour"
    session = {"sessionId": SESSION, "projectHash": "abc", "messages": gemini_messages()}
    path = whole(project / "chats/session-2026-01-05T12-00-97259dc5.json", session)
    (project / ".project_root").write_text("/code/harbour")
    return path


def gemini_lines(folder: Path) -> Path:
    first, second, third = gemini_messages()
    begun = {"id": "2", "timestamp": "2026-01-05T12:00:01Z", "type": "gemini", "content": ""}
    context = first | {"id": "0", "content": [{"text": "<session_context>x</session_context>"}]}
    wrong = {"id": "9", "timestamp": "2026-01-05T12:00:09Z", "type": "user", "content": "Wrong"}
    records = [
        {"sessionId": SESSION, "projectHash": "abc", "kind": "main"},
        {"$set": {"messages": [context], "lastUpdated": context["timestamp"]}},
        first,
        begun,
        second,
        third,
        wrong,
        {"$rewindTo": "9"},
        {"$set": {"summary": "Buoys"}},
    ]
    path = folder / ".gemini/tmp/harbour/chats/session-2026-01-05T12-00-97259dc5.jsonl"
    return lines(path, records)


def copilot(folder: Path) -> Path:
    def event(kind: str, at: str, **data: Any) -> dict[str, Any]:
        return {"type": kind, "data": data, "id": at, "timestamp": f"2026-01-05T{at}Z"}

    start = {"toolCallId": "k1", "toolName": "grep", "arguments": {"pattern": "mooring"}}
    linear = {"mcpServerName": "linear", "mcpToolName": "get_issue", "toolName": "linear-get_issue"}
    inner = {"toolCallId": "k9", "toolName": "bash", "parentToolCallId": "k1"}
    records = [
        event("session.start", "13:00:00", sessionId=SESSION, context={"cwd": "/code/harbour"}),
        event("user.message", "13:00:01", content="Find the mooring"),
        event("user.message", "13:00:01", content="a skill's text", source="skill-x"),
        event("tool.execution_start", "13:00:02", **start),
        event("tool.execution_start", "13:00:02", **inner),
        event("tool.execution_complete", "13:00:02", success=True, **inner),
        event(
            "tool.execution_complete",
            "13:00:03",
            toolCallId="k1",
            success=True,
            result={"content": "3 matches"},
        ),
        event(
            "tool.execution_start", "13:00:04", toolCallId="k2", arguments={"id": "H-1"}, **linear
        ),
        event(
            "tool.execution_complete",
            "13:00:05",
            toolCallId="k2",
            success=False,
            error={"message": "no such issue"},
        ),
        event("assistant.message", "13:00:06", content="Found."),
        event("session.compaction_complete", "13:00:07", success=True),
    ]
    return lines(folder / ".copilot/session-state" / SESSION / "events.jsonl", records)


OPENCODE_SESSION = {"id": "ses_1", "directory": "/code/harbour", "title": "Crane"}
OPENCODE_MESSAGES = (
    {"id": "msg_1", "role": "user", "time": {"created": 1_767_614_400_000}},
    {"id": "msg_2", "role": "assistant", "time": {"created": 1_767_614_401_000}},
)
OPENCODE_PARTS = {
    "msg_1": [
        {"type": "text", "text": "Why does the crane stop?"},
        {"type": "text", "text": "a file's text", "synthetic": True},
    ],
    "msg_2": [
        {
            "type": "tool",
            "tool": "read",
            "state": {
                "status": "error",
                "input": {"filePath": "/code/harbour/crane.py"},
                "error": "File not found",
                "time": {"start": 1_767_614_402_000, "end": 1_767_614_403_000},
            },
        },
        {"type": "text", "text": "It is gone."},
        {"type": "compaction"},
    ],
}


def opencode(folder: Path) -> Path:
    storage = folder / ".local/share/opencode/storage"
    for message in OPENCODE_MESSAGES:
        whole(storage / "message/ses_1" / f"{message['id']}.json", message)
        for number, part in enumerate(OPENCODE_PARTS[str(message["id"])]):
            whole(storage / "part" / str(message["id"]) / f"prt_{number}.json", part)
    return whole(storage / "session/harbour/ses_1.json", OPENCODE_SESSION)


def opencode_database(folder: Path) -> Path:
    path = folder / ".local/share/opencode/opencode.db"
    path.parent.mkdir(parents=True)
    db = sqlite3.connect(path)
    db.executescript(
        "CREATE TABLE session (id TEXT, parent_id TEXT, directory TEXT, time_created INTEGER);"
        "CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, data TEXT);"
        "CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT);"
        "INSERT INTO session VALUES ('ses_1', NULL, '/code/harbour', 1767614400000);"
        "INSERT INTO session VALUES ('ses_2', 'ses_1', '/code/harbour', 1767614400001);"
    )
    for message in OPENCODE_MESSAGES:
        known = {name: value for name, value in message.items() if name != "id"}
        at = message["time"]["created"]
        db.execute(
            "INSERT INTO message VALUES (?, 'ses_1', ?, ?)", (message["id"], at, json.dumps(known))
        )
        for number, part in enumerate(OPENCODE_PARTS[str(message["id"])]):
            row = (f"prt_{number}", message["id"], json.dumps(part))
            db.execute("INSERT INTO part VALUES (?, ?, 'ses_1', ?)", row)
    db.commit()
    db.close()
    return path


SPECSTORY = """<!-- Generated by SpecStory, Markdown v2.1.0 -->

# 2026-01-05 14:00:00Z

<!-- Claude Code Session 97259dc5-90f1-4e92-b3e2-6ba4449b9d70 (2026-01-05 14:00:00Z) -->

_**User (2026-01-05 14:00:00Z)**_

Which gate leaks?

_**Agent (claude-x 2026-01-05 14:00:05Z)**_

<think><details><summary>Thought Process</summary>Hm.</details></think>

I look at the gates.

<tool-use data-tool-type="read" data-tool-name="Read"><details>
<summary>Tool use: **Read**</summary>
 `./gates.md`

```text
     1→_**User (2026-01-01 00:00:00Z)**_
_**User (2026-01-01 00:00:00Z)**_

quoted
```
</details></tool-use>

<tool-use data-tool-type="shell" data-tool-name="Bash"><details>
<summary>Tool use: **Bash**</summary>
Run the tests

`make gates`

```text
Exit code 1
gate 3 leaks
```
</details></tool-use>

_**Agent - sidechain (claude-x 2026-01-05 14:00:30Z)**_

Searching.
"""
SPECSTORY_OLD = """<!-- Generated by SpecStory -->

# Task 7 (2026-01-05 15:00:00)

_**User**_

start task 7

---

_**Assistant**_

I'll read it.

Read file: tasks/007.md

---

```bash
make lock
```

```
lock closed
```

<details>
            <summary>Searched codebase "lock gate" • **0** results</summary>

</details>

That is all.
"""


SPECSTORY_TITLED = """<!-- Generated by SpecStory, Markdown v2.1.0 -->

# 2026-01-05 14:00:00Z

<!-- cursor Session 97259dc5-90f1-4e92-b3e2-6ba4449b9d71 (2026-01-05 14:00:00Z) -->

_**User (2026-01-05 14:00:00Z)**_

Which gate leaks?

_**Agent (model default, mode Agent)**_

<tool-use data-tool-type="read" data-tool-name="read_file">
<details><summary>Tool use: **read_file** • Read file: src/gate one.py</summary>

</details>
</tool-use>

<tool-use data-tool-type="write" data-tool-name="search_replace">
<details><summary>Tool use: **search_replace** • Edit file: src/gate.py</summary>

```diff
- `old.py`
+ new
```

</details>
</tool-use>

<tool-use data-tool-type="search" data-tool-name="grep">
<details>
<summary>Tool use: **grep** • Grep for "open_gate|close_gate" in "src" • 1 match</summary>

| File | Line | Match |
|------|------|-------|
| `src/gate.py` | L4 | `def open_gate():` |

</details>
</tool-use>

<tool-use data-tool-type="search" data-tool-name="grep_search">
<details><summary>Tool use: **grep_search** • Grep search for "nothing_here" • 0 matches</summary>

Output mode: content


_No matches found_

</details>
</tool-use>
"""


def specstory_titled(folder: Path) -> Path:
    path = folder / "harbour/.specstory/history/2026-01-05_14-00-00Z-titled.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SPECSTORY_TITLED)
    return path


def specstory(folder: Path) -> Path:
    path = folder / "harbour/.specstory/history/2026-01-05_14-00-00Z-which-gate.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SPECSTORY)
    return path


def specstory_old(folder: Path) -> Path:
    path = folder / "harbour/.specstory/history/2026-01-05_15-00-task-7.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SPECSTORY_OLD)
    return path


def neutral(folder: Path) -> Path:
    events = [
        {"session": "n", "i": 0, "t": 1_767_614_400, "kind": "prompt", "text": "Raise the flag"},
        {
            "session": "n",
            "i": 1,
            "t": 1_767_614_401.5,
            "kind": "tool",
            "tool": "Grep",
            "args": {"pattern": "flag"},
            "out": "No matches found",
        },
    ]
    return lines(folder / "flags.jsonl", events)


WRITERS = {
    "claude": claude,
    "codex": codex,
    "gemini": gemini,
    "gemini_lines": gemini_lines,
    "copilot": copilot,
    "opencode": opencode,
    "opencode_database": opencode_database,
    "specstory": specstory,
    "specstory_old": specstory_old,
    "events": neutral,
}
