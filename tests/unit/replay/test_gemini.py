"""Gemini CLI's `.jsonl` files in the shapes that version 0.61.0 writes."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.replay import samples

from upwell.episodes.events import Kind, SessionEvent
from upwell.replay.transcripts import format_named
from upwell.replay.transcripts.base import ReadTally

CONTEXT = (
    "<session_context>\nThis is the Gemini CLI. Always read the folder first.\n</session_context>"
)
HEAD = {"sessionId": samples.SESSION, "projectHash": "abc", "kind": "main"}


def user(name: str, *texts: str, **more: Any) -> dict[str, Any]:
    parts = [{"text": text} for text in texts]
    return {"id": name, "timestamp": stamp(name), "type": "user", "content": parts, **more}


def agent(name: str, said: Any = "", *calls: Mapping[str, Any]) -> dict[str, Any]:
    message = {"id": name, "timestamp": stamp(name), "type": "gemini", "content": said}
    return message | ({"toolCalls": list(calls)} if calls else {})


def stamp(name: str) -> str:
    seconds = int("".join(filter(str.isdigit, name)) or 0)
    return f"2026-01-05T12:00:{seconds:02d}Z"


def ran(command: str, output: str, status: str = "success", **response: str) -> dict[str, Any]:
    answer = {"functionResponse": {"response": {"output": output, **response}}}
    args = {"command": command}
    return {"name": "run_shell_command", "args": args, "status": status, "result": [answer]}


def listed(*messages: Mapping[str, Any]) -> dict[str, Any]:
    return {"$set": {"messages": list(messages), "lastUpdated": "2026-01-05T12:00:30Z"}}


def read(
    folder: Path, records: Iterable[Mapping[str, Any]], tally: ReadTally | None = None
) -> list[SessionEvent]:
    path = folder / ".gemini/tmp/harbour/chats/session-2026-01-05T12-00-97259dc5.jsonl"
    samples.lines(path, [HEAD, *records])
    return list(format_named("gemini").read(path, 0, tally or ReadTally()))


def told(events: Iterable[SessionEvent]) -> list[str]:
    return [
        event.text or event.args.get("command") or f"<{event.kind}>"
        for event in events
        if event.kind not in (Kind.START, Kind.END)
    ]


def test_records_after_the_first_list_of_messages_are_read(tmp_path: Path) -> None:
    records = [
        listed(user("m0", CONTEXT), user("m1", "Rename the pumps module")),
        agent("m2", "Renamed."),
        {"$set": {"lastUpdated": "2026-01-05T12:00:03Z"}},
        user("m3", "No, ask me first."),
        user("m4", "Always squash"),
        {"$rewindTo": "m4"},
        user("m5", "Always rebase"),
    ]
    tally = ReadTally()
    events = read(tmp_path, records, tally)
    assert told(events) == [
        "Rename the pumps module",
        "Renamed.",
        "No, ask me first.",
        "Always rebase",
    ]
    assert (tally.records, tally.unknown) == (8, {})


def test_a_compression_repeats_and_loses_nothing(tmp_path: Path) -> None:
    kept = [user("k3", "And the bilge?"), agent("k4", [{"text": "It is dry."}])]
    records = [
        listed(user("m0", CONTEXT)),
        user("u1", "Where is the pump?"),
        agent("g2", "", ran("ls pumps", "Output: pump.py")),
        user("u3", "And the bilge?"),
        agent("g4", "It is dry."),
        listed(
            user("m0", CONTEXT), user("s1", "<state_snapshot>so far"), agent("s2", "Got it."), *kept
        ),
        user("u5", "Then go on"),
    ]
    events = read(tmp_path, records)
    assert told(events) == [
        "Where is the pump?",
        "ls pumps",
        "And the bilge?",
        "It is dry.",
        "<compact>",
        "Then go on",
    ]


def test_a_resumed_session_is_not_compacted(tmp_path: Path) -> None:
    """The list that Gemini CLI writes then lacks prompts that begin with a hook's context, and has
    copies of the results of calls."""
    hooked = user("u1", "<hook_context>notes</hook_context>\n\nWhere is the pump?")
    response = {"functionResponse": {"response": {"output": "pump.py"}}}
    copy = {"id": "g2_response", "type": "user", "content": [response]}
    called = agent("g2", "", ran("ls pumps", "Output: pump.py"))
    rest = (called, copy, agent("g3", [{"text": "Here."}]))
    records = [
        listed(user("m0", CONTEXT)),
        hooked,
        called,
        agent("g3", "Here."),
        HEAD,
        listed(user("m0", CONTEXT)),
        {"$set": {"sessionId": samples.SESSION}},
        listed(user("m0", CONTEXT), *rest),
        listed(user("m0", CONTEXT), hooked, *rest),
        listed(user("m0", CONTEXT), *rest),
        user("u4", "And now?"),
    ]
    expected = ["Where is the pump?", "ls pumps", "Here.", "And now?"]
    assert told(read(tmp_path, records)) == expected


def test_a_turn_that_was_interrupted_took_place(tmp_path: Path) -> None:
    records = [
        listed(user("m0", CONTEXT)),
        user("u1", "Drain the dock"),
        listed(user("m0", CONTEXT)),
        user("u2", "Fill it"),
    ]
    assert told(read(tmp_path, records)) == ["Drain the dock", "Fill it"]


def test_what_the_host_writes_in_the_users_name_is_no_prompt(tmp_path: Path) -> None:
    shown = [{"text": "/review the pump"}]
    records = [
        user("u1", "Review the pump as follows: …", displayContent=shown),
        user("u2", "Please continue.", displayContent=shown),
        user("u3", "System: Potential loop detected. Details: …", displayContent=shown),
        user("u4", "Here is the user's editor context as a JSON object. This is for your…"),
        user("u5", "I ran the following shell command:\n```sh\nls\n```"),
        {
            "id": "u6",
            "type": "user",
            "content": [{"functionResponse": {"response": {"output": "x"}}}],
        },
        user("u7", "Look at @a.py", "--- Content from referenced files ---", "never do this"),
        agent("g8", [{"text": "Let me think", "thought": True}, {"text": "Done."}]),
    ]
    assert told(read(tmp_path, records)) == ["/review the pump", "Look at @a.py", "Done."]


@pytest.mark.parametrize(
    ("output", "failed"),
    [
        ("Output: no rule\nExit Code: 2\nProcess Group PGID: 7", True),
        ("<untrusted_context>\nOutput: no rule\nExit Code: 254\n</untrusted_context>", True),
        ("Output: x\nExit Code: 2\n\n<hook_context>a memory</hook_context>", True),
        ("Output: (empty)\nSignal: SIGTERM\nBackground PIDs: 1, 2", True),
        (
            "Command was automatically cancelled because it exceeded the timeout of 5.0 minutes",
            True,
        ),
        ("Output: ok\nProcess Group PGID: 7", False),
        ("Output: Exit Code: 2\nis what it printed", False),
        ("Command: ls\nOutput: a\nError: (none)\nExit Code: 0\nSignal: (none)", False),
    ],
)
def test_the_exit_status_says_whether_a_command_failed(
    tmp_path: Path, output: str, failed: bool
) -> None:
    (event,) = read(tmp_path, [agent("g1", "", ran("make", output))])[1:-1]
    assert (event.tool, event.failed) == ("Bash", failed)
    assert "_context>" not in event.out


def test_a_cancelled_call_failed_if_it_ran(tmp_path: Path) -> None:
    error = "[Operation Cancelled] Reason: User did not allow tool call"
    refused = ran("rm -r dock", "", "cancelled", error=error) | {"name": "run_shell_command"}
    stopped = ran("make", "half of it", "cancelled", error="[Operation Cancelled] stopped")
    (event,) = read(tmp_path, [agent("g1", "", refused, stopped)])[1:-1]
    assert (event.args["command"], event.failed) == ("make", True)


def test_unknown_records_are_counted(tmp_path: Path) -> None:
    records = [
        {"$prune": 3},
        {"id": "a", "type": "plan", "content": "x"},
        {"id": "b", "type": "info", "content": "x"},
        {"$set": {"history": []}},
        agent("g1", "", ran("ls", "", "paused")),
    ]
    tally = ReadTally()
    read(tmp_path, records, tally)
    assert tally.unknown == {"$prune": 1, "plan": 1, "$set.history": 1, "toolCalls.paused": 1}
    assert tally.records == 6
