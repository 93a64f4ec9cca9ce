"""`HookDoor` over the real surfacing pipeline, with given memories."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from upwell.ground.background import Receipt
from upwell.ground.clock import Deadline
from upwell.ground.host_sessions import HostSessions, agent_of
from upwell.ground.ledger import TtlStore
from upwell.ground.pause import Pause
from upwell.ground.types.cue import Cue, Door
from upwell.ground.types.memory import Found, Hit, Memory, Query
from upwell.hook.client import IGNORED_TOOLS
from upwell.hook.door import HookDoor, HookParts
from upwell.hook.options import REPLACING
from upwell.hook.tool_output import Shorten, texts_in, with_texts
from upwell.hosts import HOSTS
from upwell.hosts.events import EventKind, HostEvent, plain_args, size_of
from upwell.surface.event import writes
from upwell.surface.options import PipelineOptions, SurfaceOptions
from upwell.surface.pipeline import Surfacer
from upwell.testing import FakeRecall, ManualClock

SAID = "The mooring winch needs grease every 40 hours"


def hits(*texts: str) -> list[Hit]:
    return [
        Hit(memory=Memory(text=text, id=f"m{position}", content_hash=f"h{position}"), score=0.9)
        for position, text in enumerate(texts)
    ]


PATIENT = HookParts(limit_seconds=5)
"""Deadlines that a busy machine meets, for tests of something else."""


class SlowRecall(FakeRecall):
    """Takes its time."""

    async def search(self, query: Query, deadline: Deadline) -> Found:
        await asyncio.sleep(0.2)
        return await super().search(query, deadline)


def door_over(
    recall: FakeRecall, clock: ManualClock | None = None, **opt_ins: Any
) -> tuple[HookDoor, TtlStore]:
    ttl_store = TtlStore()
    surfacer = Surfacer(recall, ttl_store, PipelineOptions(surface=SurfaceOptions(moments="all")))
    sessions = HostSessions(ttl_store)
    parts = HookParts(**opt_ins)
    made = HookDoor(surfacer, sessions, opt_ins=parts, clock=clock or ManualClock())
    return made, ttl_store


def prompt(text: str = "How often does the winch need grease?", **more: Any) -> bytes:
    event = {"session_id": "s", "cwd": "/p", "hook_event_name": "UserPromptSubmit", "prompt": text}
    return json.dumps({**event, **more}).encode()


async def test_memories_are_given_in_the_hosts_shape() -> None:
    door, _ = door_over(FakeRecall(hits(SAID)))
    answer = json.loads(await door.answer("claude", "", prompt()))
    assert SAID in answer["hookSpecificOutput"]["additionalContext"]
    assert door.outcomes["claude", "surfaced"] == 1


async def test_the_text_of_a_memory_can_be_read_in_the_json() -> None:
    door, _ = door_over(FakeRecall(hits("Grease the winch <twice>: see <base-url>/größe")))
    answer = await door.answer("claude", "", prompt())
    assert "winch <twice>: see <\\\\base-url>/größe" in answer.decode()
    assert b"\\u" not in answer


async def test_nothing_found_is_the_neutral_answer() -> None:
    door, _ = door_over(FakeRecall())
    assert await door.answer("claude", "", prompt()) == b"{}"
    assert door.outcomes["claude", "no_candidates"] == 1


@pytest.mark.parametrize("field", ["session_id", "cwd", "hook_event_name", "prompt", "agent_id"])
async def test_a_lone_surrogate_costs_no_decision(field: str) -> None:
    """Decisions of all sessions are written together."""
    ttl_store = TtlStore()
    surfacer = Surfacer(FakeRecall(hits(SAID)), ttl_store, PipelineOptions())
    door = HookDoor(surfacer, HostSessions(ttl_store))
    await door.answer("claude", "", prompt(session_id="whole"))
    await door.answer("claude", "UserPromptSubmit", prompt(**{field: "/p \udfff\ud800"}))
    decisions = await surfacer.journal.latest(9)
    assert "whole" in {decision["session"] for decision in decisions}
    assert len(decisions) == 2


async def test_a_folder_whose_name_is_not_utf_8_costs_no_decision() -> None:
    surfacer = Surfacer(FakeRecall(hits(SAID)), TtlStore(), PipelineOptions())
    for session, cwd in (("whole", "/p"), ("odd\udcff", "/p\udcff")):
        await surfacer.surface(Cue(door=Door.PROMPT, text=SAID, session=session, cwd=cwd))
    decisions = await surfacer.journal.latest(9)
    assert {decision["session"] for decision in decisions} == {"whole", "odd?"}


async def test_a_late_memory_is_given_at_the_next_event() -> None:
    recall = SlowRecall(hits(SAID))
    door, ttl_store = door_over(recall, limit_seconds=0.05)
    assert await door.answer("claude", "", prompt()) == b"{}"
    assert door.outcomes["claude", "late"] == 1
    await door.aclose()
    assert not await ttl_store.scan("seen")
    patient, _ = door_over(FakeRecall(hits(SAID)))
    assert SAID.encode() in await patient.answer("claude", "", prompt("Which winch needs grease?"))


async def test_the_callers_time_limit_counts() -> None:
    door, _ = door_over(SlowRecall(hits(SAID)), limit_seconds=5.0)
    assert await door.answer("claude", "", prompt(), left_ms=20) == b"{}"
    await door.aclose()


async def test_entries_over_the_hosts_limit_are_left_for_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = [f"Note {n}: " + "grease of the winch " * 9 for n in range(5)]
    monkeypatch.setattr(type(HOSTS["cursor"].events), "max_bytes", 700)
    door, ttl_store = door_over(FakeRecall(hits(*texts)))
    event = {"conversation_id": "s", "hook_event_name": "beforeSubmitPrompt"}
    body = json.dumps({**event, "prompt": "How often does the winch need grease?"}).encode()
    reply = json.loads(await door.answer("cursor", "", body))["additional_context"]
    assert len(reply.encode()) <= 700
    assert reply.endswith("</upwell-memories>")
    await door.aclose()
    stored = reply.count("\n- [")
    assert 0 < stored < 5
    assert len(await ttl_store.scan("seen", "s\n")) == stored


async def test_hosts_that_share_hooks_answer_once_and_others_separately() -> None:
    clock = ManualClock()
    door, _ = door_over(FakeRecall(hits(SAID)), clock)
    assert SAID.encode() in await door.answer("claude", "", prompt())
    event = {"conversation_id": "x", "hook_event_name": "beforeSubmitPrompt", "cwd": "/p"}
    same = json.dumps({**event, "prompt": "How often does the winch need grease?"}).encode()
    assert await door.answer("cursor", "", same) == b"{}"
    assert door.outcomes["cursor", "not eligible"] == 1
    clock.advance(6)
    await door.answer("cursor", "", same)
    assert door.outcomes["cursor", "surfaced"] == 1, "a context of its own"
    await door.answer("codex", "", prompt(session_id="other"))
    assert door.outcomes["codex", "not eligible"] == 0


@pytest.mark.parametrize("arrives", [True, False])
async def test_an_answer_that_does_not_arrive_was_not_given(arrives: bool) -> None:
    door, _ = door_over(FakeRecall(hits(SAID)))
    receipt = Receipt()
    assert SAID.encode() in await door.answer("claude", "", prompt(), receipt=receipt)
    receipt.settle(arrives)
    await door.aclose()
    again = await door.answer("claude", "", prompt("Which winch needs grease?"))
    assert (SAID.encode() in again) is not arrives
    surfacer = door._surfacer
    *_, first = await surfacer.journal.latest(9)
    assert first["outcome"] == ("surfaced" if arrives else "not_delivered")
    assert len(first["memories"]) == arrives
    await surfacer.aclose()


async def test_a_memory_on_its_way_is_not_given_to_a_parallel_event() -> None:
    door, _ = door_over(FakeRecall(hits(SAID)))
    receipt = Receipt()
    await door.answer("claude", "", prompt(), receipt=receipt)
    assert await door.answer("claude", "", prompt("Which winch needs grease?")) == b"{}"
    receipt.settle(True)
    await door.aclose()


ODD: Sequence[bytes] = (
    b"",
    b"[]",
    b"3",
    b'{"hook_event_name":["Stop"]}',
    b'{"hook_event_name":"PostToolUse","tool_name":{},"tool_input":7,"cwd":3,"session_id":[]}',
    b'{"hook_event_name":"UserPromptSubmit","prompt":{"a":1}}',
    b'{"hook_event_name":"UserPromptSubmit","prompt":"\\ud800 and more words"}',
    b'{"hook_event_name":"postToolUse","workspace_roots":[7],"tool_name":"MCP:x"}',
    b'{"toolName":"bash","toolArgs":"{","toolResult":"no"}',
    b'{"sessionID":5,"args":[],"tool_name":"read"}',
)


@pytest.mark.parametrize("body", ODD)
@pytest.mark.parametrize("host", [*HOSTS, "nobody"])
async def test_odd_events_are_answered_by_every_host(host: str, body: bytes) -> None:
    door, _ = door_over(FakeRecall())
    for name in ["", *(HOSTS[host].events.kinds if host in HOSTS else ["Stop"])]:
        assert json.loads(await door.answer(host, name, body)) == {}
    await door.aclose()


async def test_a_session_is_found_by_its_process_and_by_its_folder() -> None:
    door, ttl_store = door_over(FakeRecall())
    me = agent_of(1)
    await door.answer("claude", "", prompt(), parent=4_000_000)
    await door.aclose()
    sessions = HostSessions(ttl_store)
    assert await sessions.joined("claude", 4_000_000, "/elsewhere") == "s"
    assert await sessions.joined("claude", 4_000_001, "/p") == "s"
    assert await sessions.joined("claude", 4_000_001, "/q") == ""
    assert await sessions.joined("cursor", 4_000_001, "/p") == ""
    assert me == 1


def bash(out: str = "x" * 500) -> bytes:
    fields = {"tool_name": "Bash", "tool_input": {"command": "grep winch log"}}
    reply = {"stdout": out, "stderr": ""}
    event = {"session_id": "s", "cwd": "/p", "hook_event_name": "PostToolUse", **fields}
    return json.dumps({**event, "tool_response": reply}).encode()


def shortening_door(shorten: Shorten, **opt_ins: Any) -> HookDoor:
    chosen = {"shorten": shorten, "shortened": ("claude",), **opt_ins}
    return door_over(FakeRecall(hits(SAID)), **chosen)[0]


async def test_an_answer_can_be_shortened_and_have_a_memory_beside_it() -> None:
    async def shorten(
        _: str, event: HostEvent, texts: Sequence[str], most: int | None
    ) -> list[str]:
        return [text[:5] for text in texts]

    reply = json.loads(await shortening_door(shorten).answer("claude", "", bash()))
    (output,) = reply.values()
    assert output["updatedToolOutput"] == {"stdout": "xxxxx", "stderr": ""}
    assert SAID in output["additionalContext"]


async def test_a_slow_or_failed_shortening_costs_only_the_shortening() -> None:
    async def slow(*_: Any) -> list[str]:
        await asyncio.sleep(30)
        return ["never"]

    async def broken(*_: Any) -> list[str]:
        raise RuntimeError("a fault of ours")

    for shorten in (slow, broken):
        door = shortening_door(shorten, limit_seconds=2.0)
        reply = json.loads(await door.answer("claude", "", bash()))
        (output,) = reply.values()
        assert set(output) == {"hookEventName", "additionalContext"}


async def test_a_late_shortening_ends_before_it_counts_as_a_saving() -> None:
    counted: list[str] = []

    async def slow(*_: Any) -> list[str]:
        await asyncio.sleep(0.2)
        counted.append("a saving")
        return ["short"]

    door = shortening_door(slow, limit_seconds=0.05)
    await door.answer("claude", "", bash())
    await asyncio.sleep(0.4)
    await door.aclose()
    assert counted == []


def test_the_hosts_that_compress_are_the_capable_ones() -> None:
    replies: dict[str, Any] = {
        "tool_response": "x",
        "tool_output": '{"content": []}',
        "toolResult": {"resultType": "success", "textResultForLlm": "x"},
        "output": "x",
    }
    can = set()
    for name, host in HOSTS.items():
        for event in (event for event, kind in host.events.kinds.items() if kind is EventKind.TOOL):
            for tool in ("Bash", "bash", "MCP:list", *getattr(host.events, "readers", ())):
                read = host.events.read(event, {"tool_name": tool, "toolName": tool, **replies})
                if (
                    read
                    and read.reply is not None
                    and host.events.replacement_output(read, read.reply)
                ):
                    can.add(name)
    assert can == set(REPLACING), "correct `Replacing` in hook/options.py"


@pytest.mark.parametrize("host", REPLACING)
def test_the_docs_say_what_a_host_replaces(host: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "hooks.md").read_text(encoding="utf-8")
    rows = page.partition("\n## What each agent allows\n")[2].partition("\n## ")[0]
    (row,) = [line for line in rows.splitlines() if line.startswith(f"| `{host}` |")]
    assert row.split("|")[4].strip() not in ("", "none"), f"say what upwell shortens for {host}"


@pytest.mark.parametrize(
    ("reply", "texts"),
    [
        ("a", ["a"]),
        ({"stdout": "a", "stderr": "b", "code": 3, "lines": ["c"]}, ["a", "b"]),
        ({"content": [{"type": "text", "text": "a"}, {"type": "image", "text": "b"}]}, ["a"]),
        ([{"type": "text", "text": "a"}, 7, "b", {"type": "text", "text": 3}], ["a"]),
        (None, []),
        (7, []),
        ("a" * 500_001, []),
    ],
)
def test_texts_are_found_and_put_back_in_place(reply: Any, texts: list[str]) -> None:
    result = texts_in(reply)
    assert [text for _, text in result] == texts
    places = [position for position, _ in result]
    before = json.dumps(reply)
    assert with_texts(reply, places, texts) == reply
    for position, text in result:
        changed = with_texts(reply, [position], [text + "!"])
        assert json.dumps(changed) == before.replace(json.dumps(text), json.dumps(text + "!"), 1)
    assert json.dumps(reply) == before


def test_the_client_stops_no_tool_that_a_host_would_answer() -> None:
    for host in HOSTS.values():
        for name, kind in host.events.kinds.items():
            for tool in IGNORED_TOOLS if kind is EventKind.TOOL else ():
                event = {"hook_event_name": name, "tool_name": tool, "toolName": tool}
                read = host.events.read(name, event)
                reply = Cue(door=Door.TOOL, tool=read.tool) if read else None
                known = (
                    f"{host.name} reads {tool} as {read and read.tool}: see step 3 in CONTRIBUTING"
                )
                assert reply is None or writes(reply), known


def test_arguments_get_the_names_that_surfacing_knows() -> None:
    fields = {"filePath": "a.py", "startLine": 3, "command": ["bash", "-lc", "rg tide"]}
    assert plain_args(fields) == {"file_path": "a.py", "start_line": 3, "command": "rg tide"}
    assert plain_args({"command": ["rg", "tide"]}) == {"command": "rg tide"}
    assert plain_args({"absolute_path": "/a", "file_path": "/b"}) == {"file_path": "/a"}
    assert plain_args(None) == {}


def test_the_size_of_an_answer_is_that_of_its_texts() -> None:
    assert size_of({"a": ["xx", {"b": "yyy"}], "n": 5}) == 5
    assert size_of(None) is None


async def test_earlier_hook_output_is_not_part_of_a_prompt() -> None:
    """Gemini CLI puts it there when it runs without a terminal."""
    answer = (
        "<hook_context>&lt;upwell-memories&gt;\n- harbour rules\n&lt;/...&gt;</hook_context>\n\n"
    )
    host = HOSTS["gemini"]
    for prompt, asked in (
        (answer + "How often?", "How often?"),
        (answer + answer + "How often?", "How often?"),
        ("What is <hook_context>?</hook_context>", "What is <hook_context>?</hook_context>"),
        (answer, ""),
    ):
        event = host.events.read("BeforeAgent", {"session_id": "s", "cwd": "/p", "prompt": prompt})
        assert (event.text if event else "") == asked


RULE = Memory(text="Never commit to main", id="rule", content_hash="r", pinned=True)


def called(tool: str = "Read", session: str = "s") -> bytes:
    event = {"session_id": session, "cwd": "/p", "hook_event_name": "PostToolUse"}
    fields = {"tool_name": tool, "tool_input": {"file_path": "/p/a.py"}, "tool_response": "x"}
    return json.dumps({**event, **fields}).encode()


def door_with_a_rule() -> tuple[HookDoor, HostSessions]:
    door, ttl_store = door_over(FakeRecall(rules=[RULE]), limit_seconds=5)
    return door, HostSessions(ttl_store)


async def test_an_unannounced_session_gets_its_rules_with_its_first_tool() -> None:
    door, _ = door_with_a_rule()
    assert await door.answer("claude", "", called("mcp__fs__write_file")) == b"{}"
    assert RULE.text.encode() in await door.answer("claude", "", called())
    assert await door.answer("claude", "", called("Grep")) == b"{}"


async def test_a_session_that_has_its_rules_gets_them_once() -> None:
    door, _ = door_with_a_rule()
    begun = {"session_id": "s", "cwd": "/p", "hook_event_name": "SessionStart", "source": "startup"}
    assert RULE.text.encode() in await door.answer("claude", "", json.dumps(begun).encode())
    assert await door.answer("claude", "", called()) == b"{}"
    resumed = json.dumps({**begun, "source": "resume"}).encode()
    assert await door.answer("claude", "", resumed) == b"{}"


async def test_a_subagent_gets_the_rules_and_is_not_the_hosts_session() -> None:
    door, sessions = door_with_a_rule()
    begun = {"session_id": "s", "agent_id": "a1", "cwd": "/p", "hook_event_name": "SubagentStart"}
    assert RULE.text.encode() in await door.answer("claude", "", json.dumps(begun).encode())
    again = json.dumps({**begun, "agent_id": "a2"}).encode()
    assert RULE.text.encode() in await door.answer("claude", "", again)
    await door.aclose()
    assert await sessions.joined("claude", 0, "/p") == ""


async def test_a_prompt_that_the_host_writes_is_not_a_prompt() -> None:
    door, _ = door_over(FakeRecall(hits(SAID)))
    note = "<task-notification>\n<summary>How often does the winch need grease?</summary>\n"
    note += "</task-notification>"
    assert await door.answer("claude", "", prompt(note)) == b"{}"


async def test_subagent_and_parent_have_separate_seen_logs() -> None:
    door, _ = door_over(FakeRecall(hits(SAID)))
    inner = prompt(agent_id="a1")
    assert SAID.encode() in await door.answer("claude", "", inner)
    assert SAID.encode() in await door.answer("claude", "", prompt("Which winch needs grease?"))
    assert SAID.encode() in await door.answer("claude", "", prompt(agent_id="a2"))
    again = prompt("Does the mooring winch need any grease now?", agent_id="a1")
    assert await door.answer("claude", "", again) == b"{}"
    assert door.outcomes["claude", "repeated"] == 1


async def test_a_pause_holds_for_subagents(tmp_path: Path) -> None:
    pause = Pause(tmp_path / "paused")
    pause.begin("s")
    ttl_store = TtlStore()
    surfacer = Surfacer(
        FakeRecall(hits(SAID)),
        ttl_store,
        PipelineOptions(surface=SurfaceOptions(moments="all"), is_paused=pause.holds),
    )
    door = HookDoor(surfacer, HostSessions(ttl_store), opt_ins=PATIENT)
    assert await door.answer("claude", "", prompt(agent_id="a1")) == b"{}"
    assert door.outcomes["claude", "paused"] == 1
