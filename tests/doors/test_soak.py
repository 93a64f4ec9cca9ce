"""A long day: hundreds of calls to a server that gets everything wrong, beside a good one."""

import random
from pathlib import Path

import pytest

from tests.doors.conftest import QUICK, Gateway, script
from tests.doors.peer import Peer, peak_mb
from tests.doors.reading import everything

ROUNDS = 400
GROWTH_MB = 40
QUICK_ODDITIES = [
    *("ok", "junk_lines", "bad_utf8_line", "bad_utf8_inside", "split_line", "duplicate", "die"),
    *("foreign_id", "result_null", "result_list", "result_string", "neither", "string_error"),
    *("half_then_die", "result_and_error", "content_string", "block_unknown", "nul", "crlf"),
    *("lone_surrogate", "deep_result", "open_brackets", "no_newline", "stderr_flood"),
    *("die_leaving_a_child", "end_well", "close_stdout", "early", "two_ids", "odd_notices"),
    *("notice_flood", "change_flood", "question_flood"),
]


def rss_mb(pid: int) -> float:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS:"))


def holds(peer: Peer) -> tuple[int, int, int]:
    """Processes, open files and threads."""
    own = Path(f"/proc/{peer.process.pid}")
    counts = [len(list((own / entry).iterdir())) for entry in ("fd", "task")]
    return (len(peer.tree()), *counts)


def answered(peer: Peer, tool: str) -> None:
    """Exactly one answer: `Peer` fails on a second one."""
    id = peer.start("tools/call", {"name": f"bad__{tool}", "arguments": {}})
    marks = f'"id":{id},'.encode(), f'"id":{id}}}'.encode()
    if tool == "deep_result":  # too deep for Python's own decoder
        while marks[0] not in (line := peer.line(60))[:200] and not line.endswith(marks[1]):
            pass
    else:
        peer.reply(id, 60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_long_day(gateway: Gateway, seed: int) -> None:
    dice = random.Random(seed)
    limits = {**QUICK, "call_timeout_seconds": 60.0}
    peer = gateway({"bad": script("odd"), "good": script("upstream")}, gateway=limits)
    peer.wait_for_tools("bad__ok", "good__echo")
    for tool in QUICK_ODDITIES:
        answered(peer, tool)
    before, held = rss_mb(peer.process.pid), holds(peer)
    for n in range(ROUNDS):
        answered(peer, dice.choice(QUICK_ODDITIES))
        assert everything(peer.call("good__echo", 60, text=str(n))) == str(n)
    assert rss_mb(peer.process.pid) - before < GROWTH_MB
    for now, then in zip(holds(peer), held, strict=True):
        assert now <= then + 4


@pytest.mark.slow
def test_a_thousand_calls_in_flight(gateway: Gateway) -> None:
    peer = gateway({"up": script("upstream")}, gateway={"call_timeout_seconds": 60.0})
    peer.wait_for_tools("up__echo")
    peer.deadline = 60
    params = [{"name": "up__echo", "arguments": {"text": str(n)}} for n in range(1000)]
    ids = [peer.start("tools/call", param) for param in params]
    for n, id in enumerate(ids):
        assert everything(peer.reply(id)["result"]) == str(n)


@pytest.mark.slow
def test_fifty_megabytes(gateway: Gateway) -> None:
    """A very large answer is passed on as it is, with a notice. Other calls go on meanwhile, and
    the gateway holds no more than three copies of it."""
    peer = gateway({"bad": script("odd"), "good": script("upstream")}, gateway=PATIENT)
    peer.wait_for_tools("bad__huge", "good__echo")
    id = peer.start("tools/call", {"name": "bad__huge", "arguments": {}})
    assert everything(peer.call("good__echo", 20, text="meanwhile")) == "meanwhile"
    notice, answer = peer.reply(id, 110)["result"]["content"]
    assert notice["text"].startswith("[upwell] Not shortened")
    assert len(answer["text"]) > 40_000_000
    assert peak_mb(peer.process.pid) < 250
    assert everything(peer.call("bad__ok", 10)) == "fine"


PATIENT = {"call_timeout_seconds": 100.0}
