"""Feedback changes surfacing through every door, and survives crashes of processes."""

import json
import os
import re
import signal
import time
from pathlib import Path

from tests.conftest import Upwell
from tests.doors.conftest import Gateway, script
from tests.doors.peer import Peer
from tests.doors.reading import complaint, everything

FACT = "The settlement job in src/billing/settle.py runs before midnight UTC on host heron."
OTHERS = (
    "The mobile team prefers Kotlin coroutines over RxJava.",
    "Design review happens every second Thursday in the blue room.",
    "Release notes are written in the present tense.",
)
UP = {"up": script("upstream")}
PATIENT = {"race_ms": 5000}
"""A race so long that no memory is late on a busy machine."""
OFTEN = {**PATIENT, "dedup_ttl_seconds": 0, "cooldown_seconds": 0, "rate_per_minute": 1000}
"""Settings with which the same memory may be said at every call."""


def read(peer: Peer, path: str = "src/billing/settle.py") -> dict:
    peer.wait_for_tools("up__read")
    return peer.call("up__read", path=path)


def surfacing(result: dict) -> str:
    return str(result["_meta"]["surfacing_id"])


def rate(peer: Peer, identity: str, rating: str, **more: str) -> str:
    result = peer.call("upwell__feedback", surfacing_id=identity, rating=rating, **more)
    assert not result.get("isError"), everything(result)
    return everything(result)


def threshold(upwell: Upwell, tool: str = "up__read") -> dict:
    tools = {entry["tool"]: entry for entry in upwell("tune", "--json").json["tools"]}
    return tools[tool]


def test_ten_ratings_move_the_threshold_and_survive_kill_9(
    gateway: Gateway, upwell: Upwell, tmp_path: Path
) -> None:
    lines = [
        json.dumps(
            {"text": f"Decision {n}: keep shard{n} of the ledger cold", "paths": [f"src/f{n}.py"]}
        )
        for n in range(12)
    ]
    (tmp_path / "memories.jsonl").write_text("\n".join(lines))
    assert upwell("import", "memories.jsonl").code == 0
    peer = gateway(UP, surface=OFTEN)
    for number in range(10):
        reply = read(peer, f"src/f{number}.py")
        line = rate(peer, surfacing(reply), "not_relevant")
        assert line == "noted not_relevant for 1 memory, surfaced at up__read"
    for pid in peer.tree():
        os.kill(pid, signal.SIGKILL)
    result = threshold(upwell)
    assert result["samples"] == 10
    assert 0.5 < result["min_score"] < result["suggested"] <= 0.75
    assert "10 not relevant" in result["why"]
    upwell("tune", "--apply")
    assert threshold(upwell)["min_score"] == result["suggested"]
    assert "forgot 10" in upwell("tune", "--reset").line
    assert upwell("tune", "--json").json == {"tools": [], "demoted": []}


def test_three_ratings_of_two_processes_demote_a_memory(gateway: Gateway, upwell: Upwell) -> None:
    identity = upwell("remember", FACT, "--path", "src/billing/settle.py").line
    peer = gateway(UP, surface=OFTEN)
    rate(peer, surfacing(read(peer)), "not_relevant")
    rate(peer, surfacing(read(peer)), "already_known", memory_id=f"upwell://memory/{identity}")
    third = surfacing(read(peer))
    time.sleep(1.5)
    assert upwell("feedback", third, "not_relevant", "--memory", identity).code == 0
    for _ in range(20):
        last = read(peer)
        if "surfacing_id" not in last.get("_meta", {}):
            break
        time.sleep(0.3)
    assert FACT not in everything(last)
    result = peer.call("upwell__memory_search", query="settlement job before midnight")
    assert FACT in everything(result), "search still finds it"
    time.sleep(1.5)
    stats = upwell("stats", "--json").json
    assert stats["skips"]["demoted"] >= 1
    assert stats["feedback"]["not_relevant"] == 2
    assert stats["demoted"][0]["id"] == identity
    assert "demoted" in upwell("stats").out
    assert "demoted" in upwell("explain").out
    about = upwell("explain", identity).out
    assert "demoted" in about
    assert third in about
    assert upwell("explain", third, "--json").json["decisions"][0]["id"] == third
    assert "No decision is about" in upwell("explain", "s_0").err
    assert upwell("tune", "--reset", "--memory", identity).code == 0
    assert FACT in upwell("context", "settlement job midnight?", "--door", "prompt").out


def test_an_invalid_rating_is_one_clear_line(gateway: Gateway, upwell: Upwell) -> None:
    upwell("remember", FACT, "--path", "src/billing/settle.py")
    peer = gateway(UP, surface=PATIENT)
    known = surfacing(read(peer))
    for arguments, reply in (
        ({"surfacing_id": "s_0", "rating": "helpful"}, "no surfacing 's_0'"),
        ({"surfacing_id": known, "rating": "great"}, "must be one of helpful"),
        ({"surfacing_id": known}, "needs a rating"),
        ({"surfacing_id": known, "rating": "helpful", "memory_id": "m9"}, "m9"),
    ):
        answer = peer.ask("tools/call", {"name": "upwell__feedback", "arguments": arguments})
        assert reply in complaint(answer)
        assert "\n" not in complaint(answer)
    done = upwell("feedback", "s_0", "helpful")
    assert done.code == 2
    assert len(done.err.splitlines()) == 1


def test_query_texts_stay_off_the_disk_when_they_must(
    gateway: Gateway, upwell: Upwell, home: Path
) -> None:
    upwell("remember", FACT, "--path", "src/billing/settle.py")
    peer = gateway(UP, surface={**PATIENT, "persist_query_text": False})
    peer.wait_for_tools("up__read")
    peer.call("up__read", path="src/billing/settle.py", _context_query="zanzibar settlement job")
    peer.call("upwell__memory_context", message="Does quokka settlement run before midnight?")
    peer.call("upwell__memory_search", query="wombat settlement")
    time.sleep(1.5)
    upwell(
        "context", "Is the numbat settlement job on heron?", "--door", "prompt", "--session", "s"
    )
    assert '"sha256:' in upwell("explain", "--json").out
    peer.close()
    texts = re.compile(rb"zanzibar|quokka|wombat|numbat", re.IGNORECASE)
    files = [path for path in home.rglob("*") if path.is_file()]
    assert {"ledger.db", "memory.db"} <= {path.name for path in files}
    assert [path.name for path in files if texts.search(path.read_bytes())] == []


def test_a_used_note_counts_as_viewed(gateway: Gateway, upwell: Upwell, home: Path) -> None:
    for text in OTHERS:
        upwell("remember", text)
    peer = gateway(UP, surface=PATIENT)
    peer.call("upwell__add_memory", content=FACT)
    peer.call("upwell__memory_search", query="the index has caught up with the notes")
    time.sleep(1.1)
    before = json.loads((home / "stm.json").read_text())[0]["viewed_at"]
    assert FACT in everything(read(peer))
    peer.call("up__echo", text="ssh heron and wait until midnight")
    for _ in range(40):
        (note,) = json.loads((home / "stm.json").read_text())
        if note["viewed_at"] != before:
            break
        time.sleep(0.25)
    assert note["viewed_at"] != before
