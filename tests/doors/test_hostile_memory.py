"""A memory server that does everything wrong delays calls only briefly and changes no answer."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from tests.conftest import Upwell
from tests.doors.conftest import Gateway, script
from tests.doors.peer import Peer
from tests.doors.reading import everything
from tests.doors.test_ltm import FACT, UP, asked, ltm, remembered, until_asked

__all__ = ["remembered"]
HOSTILE = ["latency", "hang", "garbage", "large", "crash", "error", "schema"]
RACE_SECONDS = 0.3
CALLS = 12
NAMES = ["harbour", "lantern", "violin", "meadow", "copper", "glacier", "saddle", "orchid"]


def read(peer: Peer, number: int) -> tuple[float, bytes]:
    """Make a call about a file of its own. Returns the duration, and the answer without its ids."""
    name = f"{NAMES[number % len(NAMES)]}{number}"
    began = time.perf_counter()
    raw = peer.call_raw("up__echo", f'{{"text":"{name}/{name}_main.py","_context_query":"{name}"}}')
    took = time.perf_counter() - began
    return took, re.sub(rb"s_[0-9a-f]{12}", b"s_", re.sub(rb'"id":\d+', b'"id":0', raw))


def many(peer: Peer, first: int) -> tuple[list[float], list[bytes]]:
    pairs = [read(peer, first + number) for number in range(CALLS)]
    return [took for took, _ in pairs], [raw for _, raw in pairs]


def alone(gateway: Gateway) -> tuple[float, float, list[bytes]]:
    """The same calls without a memory server: their median and longest times, and the answers."""
    peer = gateway(UP)
    peer.wait_for_tools("up__echo")
    many(peer, 100)
    times, answers = many(peer, 0)
    peer.close()
    return median(times), max(times), answers


@pytest.mark.parametrize("how", HOSTILE)
def test_every_call_is_delivered_unchanged_and_in_time(
    gateway: Gateway, remembered: None, tmp_path: Path, how: str
) -> None:
    """A call waits for the memory server for at most `RACE_SECONDS`, and not at all once the server
    is skipped. Its time is compared with that of calls without the server, measured in the same
    minute on the same machine.
    """
    usual, worst, expected = alone(gateway)
    log = tmp_path / "ltm.log"
    server = script("ltm", "--log", str(log), "--how", how, "--fact", FACT)
    peer = gateway(UP, ltm=ltm(server), surface={"circuit_reset_seconds": 600})
    peer.wait_for_tools("up__echo")
    until_asked(peer, log)
    times, answers = many(peer, 0)
    assert answers == expected
    assert max(times) <= RACE_SECONDS + 5 * worst + 0.3
    if how in ("latency", "hang"):
        until(lambda: bool(read(peer, 200)) and asked(log) >= 3)
        times, _ = many(peer, 300)
        assert asked(log) == 3, "three failures in a row, and it is left alone"
        assert median(times) <= 3 * usual + 0.05


def until(condition: Callable[[], bool], deadline: float = 30.0) -> None:
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_recovered_server_is_used_again(gateway: Gateway, upwell: Upwell, tmp_path: Path) -> None:
    """After three failures in a row, the server is skipped. Then one request a second tries it,
    until it answers."""
    upwell("remember", "The mobile team prefers Kotlin coroutines over RxJava.")
    log = tmp_path / "ltm.log"
    server = script("ltm", "--state", str(tmp_path), "--log", str(log), "--how", "flap:5")
    server += ["--fact", FACT]
    patient = {
        "race_ms": 5000,
        "circuit_reset_seconds": 1.0,
        "rate_per_minute": 1000,
        "moments": "all",
    }
    peer = gateway(UP, ltm=ltm(server), surface=patient)
    peer.wait_for_tools("up__read")
    until_asked(peer, log)
    number = 0

    def surfaced() -> bool:
        nonlocal number
        number += 1
        path = f"src/billing/settle.py?{number}"
        reply = peer.call("up__read", path="src/billing/settle.py", reason=path)
        return FACT in everything(reply)

    until(surfaced)
    assert asked(log) >= 6


def test_the_memory_server_does_not_get_our_environment(gateway: Gateway, tmp_path: Path) -> None:
    """A memory server gets the same few variables as any other server; keys for models do not reach
    it."""
    seen = tmp_path / "seen"
    code = f"env > {seen}; exec {' '.join(script('ltm', '--log', str(tmp_path / 'log')))}"
    canaries = {"UPWELL_LLM__API_KEY": "k1", "OPENAI_API_KEY": "k2", "UPWELL_LTM__HEADERS": "{}"}
    peer = gateway(UP, ltm={"command": ["sh", "-c", code]}, env=canaries)
    until_asked(peer, tmp_path / "log")
    names = {line.partition("=")[0] for line in seen.read_text().splitlines()}
    assert {"PATH", "HOME"} <= names
    assert not {name for name in names if "UPWELL" in name or "KEY" in name}
