"""Memories appear beside the responses to which they are relevant, and only there."""

import json

import pytest

from tests.conftest import Upwell
from tests.doors.conftest import Gateway, script
from tests.doors.peer import Peer
from tests.doors.reading import everything, texts

FACT = "The settlement job in src/billing/settle.py runs before midnight UTC, or refunds double."
OTHERS = [
    "The mobile team prefers Kotlin coroutines over RxJava.",
    "Design review happens every second Thursday in the blue room.",
    "Staging certificates are renewed by the ops calendar in March.",
    "The search index is rebuilt nightly by cron on host heron.",
    "Release notes are written in the present tense.",
]
UP = {"up": script("upstream")}
PATIENT = {"race_ms": 20_000, "timeout_seconds": 20}
"""A race so long that memories win it even on a busy machine."""


@pytest.fixture
def remembered(upwell: Upwell) -> str:
    """A home with a few memories. Returns the id of the relevant one."""
    for text in OTHERS:
        assert upwell("remember", text).code == 0
    return upwell("remember", FACT, "--path", "src/billing/settle.py").line.split()[-1]


def read_settle(peer: Peer) -> dict:
    peer.wait_for_tools("up__read")
    return peer.call("up__read", path="src/billing/settle.py")


def test_a_memory_about_a_file_comes_with_the_file(gateway: Gateway, remembered: str) -> None:
    result = read_settle(gateway(UP, surface=PATIENT))
    assert FACT in everything(result)
    assert result["_meta"]["surfacing_id"]
    assert result["_meta"]["surfacing_id"] in everything(result)
    first, *rest = texts(result)
    json.loads(first)
    assert FACT in "".join(rest), "an upstream's block is never appended to"


def test_a_memory_surfaces_once(gateway: Gateway, remembered: str) -> None:
    peer = gateway(UP, surface=PATIENT)
    assert FACT in everything(read_settle(peer))
    assert FACT not in everything(read_settle(peer))


LONG = f"{FACT} " + "The settlement job of src/billing/settle.py locks its table first. " * 80


@pytest.mark.parametrize(
    ("sizes", "most"),
    [
        ({"max_count": 1}, 3000),
        ({"max_count": 1, "injection_mode": "section"}, 3000),
        ({"max_count": 1, "max_injection_chars": 1500}, 1500),
        ({"max_injection_chars": 300}, 300),
    ],
)
def test_a_memory_too_long_for_a_block_is_cut_to_it(
    gateway: Gateway, upwell: Upwell, sizes: dict[str, object], most: int
) -> None:
    assert upwell("remember", LONG, "--path", "src/billing/settle.py").code == 0
    result = read_settle(gateway(UP, surface={**PATIENT, **sizes}))
    block = texts(result)[-1]
    assert "settlement" in block.partition("\n- [")[2]
    assert 0.8 * most < len(block) <= most


def test_without_a_relevant_memory_nothing_surfaces(gateway: Gateway, remembered: str) -> None:
    peer = gateway(UP, surface=PATIENT)
    peer.wait_for_tools("up__read")
    result = peer.call("up__read", path="docs/garden/tulips.txt")
    assert len(texts(result)) == 1
    assert "surfacing_id" not in result.get("_meta", {})
    assert len(texts(peer.call("up__echo", text="hello"))) == 1


def test_a_running_gateway_surfaces_memories_that_other_processes_add(
    gateway: Gateway, upwell: Upwell
) -> None:
    for text in OTHERS:
        upwell("remember", text)
    peer = gateway(UP, surface=PATIENT)
    assert FACT not in everything(read_settle(peer))
    upwell("remember", FACT)
    peer.wait_for_tools("up__read")
    later = peer.call("up__read", path="src/billing/settle.py", reason="second look")
    assert FACT in everything(later)


def test_one_agents_note_is_surfaced_by_another_gateway(gateway: Gateway, upwell: Upwell) -> None:
    for text in OTHERS:
        upwell("remember", text)
    first, second = gateway(UP, surface=PATIENT), gateway()
    reply = first.call("upwell__add_memory", content=FACT)
    assert not reply.get("isError"), everything(reply)
    assert FACT in everything(read_settle(second))


def test_a_memory_deleted_on_the_command_line_is_not_surfaced(
    gateway: Gateway, upwell: Upwell, remembered: str
) -> None:
    peer = gateway(UP, surface=PATIENT)
    peer.wait_for_tools("up__read")
    assert upwell("forget", remembered).code == 0
    assert FACT not in everything(read_settle(peer))


def test_a_servers_answers_never_become_memories(gateway: Gateway, upwell: Upwell) -> None:
    """No answer becomes a memory, neither a small nor a large one."""
    for text in OTHERS:
        assert upwell("remember", text).code == 0
    peer = gateway(UP, surface=PATIENT)
    peer.wait_for_tools("up__echo")
    for entry in (FACT, f"Remember this for later: {FACT}", FACT + "\n" + "padding " * 20_000):
        peer.call("up__echo", text=entry)
        peer.call("up__read", path="src/billing/settle.py", text=entry)
    peer.close()
    held = upwell("recall", "--json").json["hits"]
    assert sorted(hit["text"] for hit in held) == sorted(OTHERS)
    assert FACT not in everything(read_settle(gateway(UP, surface=PATIENT)))


def test_off_silences_every_door(gateway: Gateway, upwell: Upwell, remembered: str) -> None:
    peer = gateway(UP, surface=PATIENT)
    assert upwell("off").code == 0
    assert len(texts(read_settle(peer))) == 1
    assert upwell("on").code == 0
    assert FACT in everything(read_settle(peer))


def test_a_broken_memory_never_fails_a_call(gateway: Gateway, home, remembered: str) -> None:
    (home / "memory.db").write_bytes(b"this is not a database" * 1000)
    for name in ("memory.db-wal", "memory.db-shm"):
        (home / name).unlink(missing_ok=True)
    result = read_settle(gateway(UP, surface=PATIENT))
    assert not result.get("isError")
    assert "settle.py" in texts(result)[0]


def test_our_own_tools_answer(gateway: Gateway, remembered: str) -> None:
    peer = gateway(UP, surface=PATIENT)
    tools = peer.wait_for_tools("up__read")
    assert {"upwell__read_more", "upwell__memory_context", "upwell__memory_search"} <= set(tools)
    result = peer.call("upwell__memory_search", query="when must the settlement job run?")
    assert FACT in everything(result)
    context = peer.call("upwell__memory_context", message="When must the settlement job run?")
    assert "settle" in everything(context)
