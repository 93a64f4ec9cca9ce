"""Two gateways over one PostgreSQL share memories and ratings, and nothing else."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.doors.address import Address, said
from tests.doors.reading import key_in
from tests.doors.replicas import PATIENCE, SOON_SECONDS, Replica, replicas
from tests.doors.servers.data import big_markdown
from tests.postgres import cluster

FACT = "The harbour gate opens at dawn, and `src/gate.py` sets the hour"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Replica]]:
    folder = tmp_path_factory.mktemp("pair")
    with replicas(folder, cluster().database(), "a", "b", surface={"cooldown_seconds": 0.0}) as two:
        yield two


def upwell(replica: Replica, *words: str) -> str:
    """Run a command over the home of a replica. Returns its output."""
    done = subprocess.run(
        [sys.executable, "-m", "upwell", *words],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(replica.home),
            "UPWELL_HOME": str(replica.home),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def soon(holds: Callable[[], bool]) -> float:
    """Wait until something holds. Returns the seconds that it took."""
    began = time.monotonic()
    while not holds():
        took = time.monotonic() - began
        assert took < SOON_SECONDS * PATIENCE, f"not within {took:.1f} s"
        time.sleep(0.02)
    return time.monotonic() - began


def call(address: Address, tool: str, **arguments: Any) -> Mapping[str, Any]:
    """Call a tool in the modern era, without a session."""
    status, _, message = address.modern("tools/call", {"name": tool, "arguments": arguments})
    assert status == 200, message
    return dict(message["result"])


def test_a_memory_of_one_replica_is_surfaced_by_the_other(pair: list[Replica]) -> None:
    a, b = pair
    id = upwell(a, "remember", FACT, "--path", "src/gate.py")

    def found() -> bool:
        context = call(b.address, "upwell__memory_context", message="When does the gate open?")
        return FACT in said(context)

    soon(found)
    upwell(b, "forget", id)
    hits = said(call(a.address, "upwell__memory_search", query="harbour gate dawn"))
    assert FACT not in hits


def test_what_ratings_teach_holds_on_every_replica(pair: list[Replica]) -> None:
    """Three bad ratings silence a memory for good."""
    a, b = pair
    text = "The lighthouse lamp is trimmed by `src/lamp.py` each evening"
    id = upwell(a, "remember", text, "--path", "src/lamp.py")
    for _ in range(3):
        result = call(a.address, "upwell__memory_context", message="Who trims the lighthouse lamp?")
        surfacing = result["_meta"]["surfacing_id"]
        rated = call(
            a.address,
            "upwell__feedback",
            surfacing_id=surfacing,
            rating="not_relevant",
            memory_id=id,
        )
        assert not rated.get("isError"), rated
    for replica in (a, b):
        soon(lambda replica=replica: id in upwell(replica, "stats", "--json"))


def test_everything_else_belongs_to_one_gateway(pair: list[Replica]) -> None:
    a, b = pair
    assert a.token != b.token
    guest = upwell(a, "token", "add", "ana")
    assert Address(a.port, guest).modern("server/discover", {})[0] == 200
    assert Address(b.port, guest).modern("server/discover", {})[0] == 401
    session = a.address.begin()
    session.address = b.address
    assert session.post("ping", 2)[0] == 404
    key = key_in(call(a.address, "up__big_markdown"))
    assert call(b.address, "upwell__read_more", key=key, offset=0).get("isError")
    call(a.address, "upwell__add_memory", content="The dredger leaves on Thursdays")
    assert "Thursdays" in said(call(a.address, "upwell__search_memory", query="dredger"))
    assert "Thursdays" not in said(call(b.address, "upwell__search_memory", query="dredger"))
    upwell(a, "off")
    assert said(call(a.address, "up__big_markdown")) == big_markdown()
    assert key_in(call(b.address, "up__big_markdown"))
    upwell(a, "on")
