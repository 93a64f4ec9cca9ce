"""Drill: the clock of one replica is wrong by a minute. Its whole process has the wrong time, as if
the machine's clock were wrong; PostgreSQL and the other replica have the right one."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.doors.address import Address, said
from tests.doors.reading import everything
from tests.doors.replicas import Replica
from tests.postgres import cluster

MINUTE = 60.0
ORIGINAL_SECONDS = 25.0
"""Less than the difference between the clocks: a replica that trusted its own clock would lose an
original at once, or keep it far too long."""
WRONG_CLOCK = """
import datetime, os, time

ahead = float(os.environ["WRONG_CLOCK_SECONDS"])
right, right_ns = time.time, time.time_ns
time.time = lambda: right() + ahead
time.time_ns = lambda: right_ns() + int(ahead * 1e9)


class WrongDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls):
        return cls.now(datetime.UTC).replace(tzinfo=None)


datetime.datetime = WrongDatetime
"""
FACTS = {
    "When does the harbour gate open in the morning?": (
        "The harbour gate opens at dawn, once warden Lindqvist has lowered both chains"
    ),
    "Who may steer the southern crane?": (
        "The southern crane obeys Ada alone, whose badge unlocks its yellow cabin"
    ),
    "Which dredger works on Thursdays?": (
        "Dredger Otter clears silt on Thursdays, moored beside pontoon seven until noon"
    ),
    "How deep is the northern basin?": (
        "The northern basin measures nine metres, except along its collapsed eastern quay"
    ),
}


class Pair:
    """A replica with the right clock, and one whose clock is `ahead`."""

    def __init__(self, folder: Path, ahead: float) -> None:
        self.ahead = ahead
        self.url = cluster().database()
        tables: Mapping[str, Mapping[str, Any]] = {
            "surface": {"cooldown_seconds": 30.0, "rate_per_minute": 2},
            "compress": {"original_ttl_seconds": ORIGINAL_SECONDS},
        }
        self.right = Replica(folder, "right", self.url, **tables)
        self.wrong = Replica(folder, "wrong", self.url, **tables)
        startup = folder / "startup"
        startup.mkdir()
        (startup / "sitecustomize.py").write_text(WRONG_CLOCK)
        self.wrong.environment |= {
            "PYTHONPATH": str(startup),
            "WRONG_CLOCK_SECONDS": str(ahead),
        }

    def value(self, sql: str) -> Any:
        """The result of a query that bypasses row-level security."""
        with psycopg.connect(self.url.replace("upwell_app@", "postgres@")) as connection:
            row = connection.execute(sql.encode()).fetchone()
        return row[0] if row else None


@pytest.fixture(params=[MINUTE, -MINUTE], ids=["ahead", "behind"], scope="module")
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    both = Pair(tmp_path_factory.mktemp("clocks"), request.param)
    try:
        both.right.start()
        both.wrong.start()
        for number, fact in enumerate(FACTS.values()):
            upwell(both.right if number % 2 else both.wrong, "remember", fact)
        yield both
    finally:
        for replica in (both.right, both.wrong):
            if replica.process:
                replica.stop()


def upwell(replica: Replica, *words: str) -> str:
    """Run a command on the machine of a replica. Returns its output."""
    done = subprocess.run(
        [sys.executable, "-m", "upwell", *words],
        env=replica.environment,
        cwd=replica.home,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def call(address: Address, tool: str, **arguments: Any) -> dict[str, Any]:
    status, _, message = address.modern("tools/call", {"name": tool, "arguments": arguments})
    assert status == 200, message
    return dict(message["result"])


def test_the_whole_process_has_the_wrong_time_and_its_memories_surface(pair: Pair) -> None:
    fact = "The ferry is blue"
    began = time.time()
    upwell(pair.wrong, "remember", fact)
    created = pair.value(f"SELECT created_at FROM upwell.memory WHERE text = '{fact}'")
    assert began - 2 < created - pair.ahead < time.time() + 2, "the clock is not wrong"
    began = time.time()
    call(pair.wrong.address, "upwell__add_memory", content="The tug is a note of this replica")
    note = said(call(pair.wrong.address, "upwell__search_memory", query="tug"))
    shown = re.search(r"\d{4}-\d\d-\d\dT[\d:.]+Z", note)
    assert shown, note
    at = datetime.fromisoformat(shown[0]).timestamp()
    assert began - 2 < at - pair.ahead < time.time() + 2, "the replica's clock is not wrong"
    for replica in (pair.right, pair.wrong):
        for question, text in FACTS.items():
            context = call(replica.address, "upwell__memory_context", message=question)
            assert text in everything(context), (replica.home.name, question)
    listed = said(call(pair.right.address, "upwell__memory_search", query="harbour crane dredger"))
    assert all(text in listed for text in list(FACTS.values())[:3])


def test_no_memory_is_lost_while_both_write(pair: Pair) -> None:
    """Memories that both write in turn, and one that both change: the last change counts."""
    for number in range(3):
        for replica in (pair.right, pair.wrong):
            upwell(replica, "remember", f"Buoy {number} of {replica.home.name} is green")
    id = upwell(pair.wrong, "remember", "The lighthouse is white")
    upwell(pair.right, "forget", id)
    upwell(pair.wrong, "restore", id)
    for replica in (pair.right, pair.wrong):
        hits = json.loads(upwell(replica, "recall", "buoy green", "-k", "20", "--json"))["hits"]
        names = {re.sub(r" is green.*", "", hit["text"]) for hit in hits if "Buoy" in hit["text"]}
        assert names == {f"Buoy {n} of {name}" for n in range(3) for name in ("right", "wrong")}
        assert "white" in upwell(replica, "recall", "lighthouse")
