"""What upwell records about a session, and what a session gets again after a compaction: documented
events through the real executable and a real daemon."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.doors.hook_events import HOSTS as DOCUMENTED
from tests.doors.hook_events import claude_like, codex, cursor, gemini
from tests.doors.hooked import House
from tests.unit.app.test_carried_commands import transcript as transcript_of

TEXT = "The {} winch needs grease every 40 hours, by Marguerite"
RULE = "Never commit to the main branch"


USED = {
    "anchor": "The anchor chain is galvanised at Trondheim by Marguerite",
    "pump": "The bilge pump is overhauled at Esbjerg by Cornelius",
    "radar": "The radar dome is repainted at Falmouth by Philippa",
    "compass": "The compass deviation is swung at Gdansk by Bartholomew",
}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("sessions"))
    hosts = ["claude", "codex", "gemini", "cursor", "copilot", "opencode"]
    day = 86_400 * 900
    answer = [
        {"id": f"winch-{host}", "text": TEXT.format(host), "paths": [f"src/{host}_winch.py"]}
        for host in hosts
    ]
    aged = [{**host, "created_at": time.time() - day, "namespace": "default"} for host in answer]
    used = [{"text": text, "paths": [f"src/{host}.py"]} for host, text in USED.items()]
    house.keep(
        [*aged, *used, *({"text": f"A note about {word}"} for word in ("rope", "sail", "mast"))]
    )
    house.upwell("remember", "--pin", RULE)
    (house.home / "config.toml").write_text("surface.cooldown_seconds = 0\n")
    house.start()
    yield house
    house.stop()


def read(house: House, host: str) -> str:
    case = DOCUMENTED[host]
    event = case.tool(str(house.project), house.file(f"{host}_winch.py"))
    return str(house.hook(host, *case.args("tool"), event=event).json)


def until(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + 15
    while not (result := true()) and time.monotonic() < end:
        time.sleep(0.2)
    return result


COMPACTING: Mapping[str, tuple[list[str], Callable[[str], dict[str, Any]]]] = {
    "claude": ([], lambda cwd: claude_like("8f14e45f", cwd, "PreCompact", trigger="auto")),
    "codex": ([], lambda cwd: codex(cwd, "PreCompact", trigger="manual")),
    "gemini": ([], lambda cwd: gemini(cwd, "PreCompress", trigger="manual")),
    "cursor": ([], lambda cwd: cursor(cwd, "preCompact", trigger="auto", message_count=90)),
    "copilot": (
        ["preCompact"],
        lambda cwd: {"sessionId": "cop-1", "timestamp": 1, "cwd": cwd, "trigger": "auto"},
    ),
    "opencode": (["session.compacting"], lambda cwd: {"sessionID": "ses_1", "cwd": cwd}),
}


@pytest.mark.parametrize("host", COMPACTING)
def test_memories_are_given_again_after_a_compaction(house: House, host: str) -> None:
    assert "needs grease" in read(house, host)
    assert read(house, host) == "{}"
    args, compacting = COMPACTING[host]
    assert house.hook(host, *args, event=compacting(str(house.project))).json == {}
    assert until(lambda: "needs grease" in read(house, host))
    assert read(house, host) == "{}"


def test_gemini_announces_compressions_that_may_not_happen(house: House) -> None:
    """It announces a possible compression before every request to its model; only the history shows
    a real one."""
    cwd = str(house.project)
    announced = gemini(cwd, "PreCompress", trigger="auto")
    house.hook("gemini", event=COMPACTING["gemini"][1](cwd))
    assert until(lambda: "needs grease" in read(house, "gemini"))
    house.hook("gemini", event=announced)
    assert read(house, "gemini") == "{}"
    chat = house.project.parent / "session-1daf4fd8.jsonl"
    payload = {"type": "user", "content": [{"text": "<hook_context>&lt;upwell-memories id=..."}]}
    anew = {"$set": {"messages": [{"type": "user", "content": [{"text": "<state_snapshot>"}]}]}}
    lines = [
        json.dumps(entry, separators=(",", ":")) for entry in ({"kind": "main"}, payload, anew)
    ]
    chat.write_text("\n".join(lines))
    over = gemini(cwd, "AfterAgent", prompt_response="Done.", stop_hook_active=False)
    house.hook("gemini", event={**over, "transcript_path": str(chat)})
    assert until(lambda: "needs grease" in read(house, "gemini"))


@pytest.mark.parametrize("host", ["claude", "codex"])
def test_a_compacted_session_continues_with_its_rules_and_memories(house: House, host: str) -> None:
    cwd, case = str(house.project), DOCUMENTED[host]
    _, compacting = COMPACTING[host]
    house.hook(host, event=compacting(cwd))
    assert RULE in str(house.hook(host, event=case.session(cwd)).json)
    assert until(lambda: "needs grease" in read(house, host))
    house.hook(host, event=compacting(cwd))
    again = house.hook(host, event={**case.session(cwd), "source": "compact"}).json
    text = case.text(again, "SessionStart")
    assert RULE in text
    assert TEXT.format(host) in text
    assert read(house, host) == "{}", "it was told as the session went on"
    resumed = house.hook(host, event={**case.session(cwd), "source": "resume"}).json
    assert "needs grease" not in str(resumed)


def test_a_compacted_session_gets_the_commands_that_worked(house: House, tmp_path: Path) -> None:
    cwd = str(house.project)
    path = transcript_of(tmp_path, "make dock PUMP=1", "make dock PUMP=1", "ls")
    begun = {**DOCUMENTED["claude"].session(cwd), "session_id": "k1", "transcript_path": str(path)}
    assert "make dock" not in str(house.hook("claude", event=begun).json)
    again = house.hook("claude", event={**begun, "source": "compact"}).json
    text = DOCUMENTED["claude"].text(again, "SessionStart")
    assert "`make dock PUMP=1`" in text
    assert "`ls`" not in text


def transcript(house: House, *entries: Mapping[str, Any]) -> str:
    path = house.project.parent / "session.jsonl"
    path.write_text("\n".join(map(json.dumps, entries)))
    return str(path)


def assistant(block: Mapping[str, Any]) -> dict[str, Any]:
    at = datetime.now(UTC).isoformat()
    message = {"role": "assistant", "content": [block]}
    return {"type": "assistant", "timestamp": at, "message": message}


def settled(house: House, kind: str) -> int:
    return int(json.loads(house.upwell("stats", "--json"))[kind])


def told(house: House, what: str) -> Callable[..., dict[str, Any]]:
    """Begin a session that gets the memory about `what`. Returns a function for its next events."""
    cwd = str(house.project)
    event = DOCUMENTED["claude"].tool(cwd, house.file(f"{what}.py")) | {"session_id": what}
    assert USED[what] in str(house.hook("claude", event=event).json)
    return lambda name, **more: claude_like(what, cwd, name, **more)


@pytest.mark.parametrize("what", ["anchor", "pump"])
def test_the_end_of_a_turn_settles_which_memories_were_used(house: House, what: str) -> None:
    event, before = told(house, what), settled(house, "used")
    words = {"anchor": "galvanised, Trondheim: ask Marguerite", "pump": "Cornelius, in Esbjerg"}
    if what == "pump":
        over = {"last_assistant_message": words[what], "transcript_path": "/nowhere.jsonl"}
    else:
        file = {"file_path": "x.py", "content": words[what]}
        wrote = assistant({"type": "tool_use", "id": "t", "name": "Write", "input": file})
        over = {"transcript_path": transcript(house, wrote)}
    assert house.hook("claude", event={**event("Stop", stop_hook_active=False), **over}).json == {}
    assert until(lambda: settled(house, "used") == before + 1)


def test_the_end_of_a_session_settles_which_memories_were_ignored(house: House) -> None:
    event = told(house, "radar")
    used, ignored = settled(house, "used"), settled(house, "ignored")
    for number in range(4):
        fields = {"file_path": house.file(f"tulip{number}.py")}
        read = event("PostToolUse", tool_name="Read", tool_input=fields, tool_response={})
        house.hook("claude", event=read)
    payload = {"type": "user", "message": {"role": "user", "content": f"<x> {USED['radar']}"}}
    path = transcript(house, {**payload, "timestamp": datetime.now(UTC).isoformat()})
    ended = {**event("SessionEnd", reason="exit"), "transcript_path": path}
    assert house.hook("claude", event=ended).json == {}
    assert until(lambda: settled(house, "ignored") == ignored + 1)
    assert settled(house, "used") == used, "what upwell said itself is no use of it"


def test_a_transcript_that_is_a_link_is_not_read(house: House, tmp_path: Path) -> None:
    event, before = told(house, "compass"), settled(house, "used")
    link = tmp_path / "link.jsonl"
    link.symlink_to(transcript(house, assistant({"type": "text", "text": USED["compass"]})))
    house.hook("claude", event={**event("Stop"), "transcript_path": str(link)})
    house.stop()
    assert settled(house, "used") == before
    house.start()
