"""Two gateways over one PostgreSQL: what one of them gives, knows or changes holds on the other."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.doors.address import Address, said
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


def test_the_owner_has_one_token_on_all_replicas(pair: list[Replica]) -> None:
    a, b = pair
    assert a.token == b.token
    own = Address(b.port, (b.home / "token").read_text().strip())
    assert own.modern("server/discover", {})[0] == 200


def test_a_token_is_valid_on_every_replica_and_revoked_on_every_replica(
    pair: list[Replica],
) -> None:
    a, b = pair
    token = upwell(a, "token", "add", "ana")
    guest = Address(b.port, token)
    soon(lambda: guest.modern("server/discover", {})[0] == 200)
    assert "ana" in upwell(b, "token", "list")
    upwell(b, "token", "remove", "ana")
    soon(lambda: Address(a.port, token).modern("server/discover", {})[0] == 401)
    soon(lambda: guest.modern("server/discover", {})[0] == 401)


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


def test_notes_are_deleted_on_every_replica(pair: list[Replica]) -> None:
    a, b = pair
    note = "The dredger leaves on Thursdays"
    call(a.address, "upwell__add_memory", content=note)
    soon(lambda: note in said(call(b.address, "upwell__search_memory", query="dredger")))
    texts = said(call(b.address, "upwell__search_memory", query="dredger"))
    id = re.search(r"[0-9a-f]{8}-[0-9a-f-]{27}", texts)
    assert id
    call(b.address, "upwell__delete_memory", id=id[0])
    soon(lambda: note not in said(call(a.address, "upwell__search_memory", query="dredger")))


def test_the_switch_holds_on_every_replica(pair: list[Replica]) -> None:
    a, b = pair
    shortened = call(b.address, "up__big_markdown")["content"]
    assert "for everybody" in upwell(a, "off")
    soon(lambda: said(call(b.address, "up__big_markdown")) == big_markdown())
    upwell(b, "on")
    soon(lambda: call(a.address, "up__big_markdown")["content"] == shortened)


def test_proposals_are_decided_once_for_all(pair: list[Replica], tmp_path: Path) -> None:
    a, b = pair
    from upwell.app.team import current_files
    from upwell.capture.inbox import Proposal, inbox_at
    from upwell.config import load

    boxes = []
    for replica in (a, b):
        config = load(replica.home, environment={})
        boxes.append(inbox_at(config.home.inbox_file, current_files(config)))
    one, other = boxes
    proposal = Proposal(text="Use make, not npm", source="session:x", why="standing rule")
    assert one.propose([proposal]).new == 1
    assert other.propose([proposal]).new == 0
    soon(lambda: [item.id for item in other.waiting()] == [proposal.id])
    assert [item.id for item in other.take([proposal.id])] == [proposal.id]
    assert one.propose([proposal]).new == 0
    assert one.waiting() == []


def test_what_ratings_teach_holds_on_every_replica(pair: list[Replica]) -> None:
    """Three bad ratings silence a memory for good."""
    a, b = pair
    text = "The lighthouse lamp is trimmed by `src/lamp.py` each evening"
    id = upwell(a, "remember", text, "--path", "src/lamp.py")
    for _ in range(3):
        result = call(a.address, "upwell__memory_context", message="Who trims the lighthouse lamp?")
        surfacing = result["_meta"]["surfacing_id"]
        rated = call(
            b.address,
            "upwell__feedback",
            surfacing_id=surfacing,
            rating="not_relevant",
            memory_id=id,
        )
        assert not rated.get("isError"), rated
    for replica in (a, b):
        soon(lambda replica=replica: id in upwell(replica, "stats", "--json"))


def test_sources_are_shared(pair: list[Replica], tmp_path: Path) -> None:
    a, b = pair
    notes = tmp_path / "notes.md"
    notes.write_text("# Tides\n\nThe spring tide floods the lower quay twice a month.\n")
    upwell(a, "import", str(notes))

    def found() -> bool:
        query = "spring tide lower quay"
        return "floods" in said(call(b.address, "upwell__memory_search", query=query))

    soon(found)
