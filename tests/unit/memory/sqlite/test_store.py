"""The SQLite store: a read sees one snapshot, even during deletions, and older files open."""

import sqlite3
from pathlib import Path

import pytest

from upwell.ground.clock import Deadline
from upwell.ground.sqlite.database import Owner, open_database
from upwell.ground.sqlite.file import migrate
from upwell.ground.sqlite.readable import Source
from upwell.ground.types.memory import Memory, Query
from upwell.memory.recall import StoreRecall
from upwell.memory.sqlite.store import OWNER, SqliteStore


class Interruption:
    """Deletes every memory, through a connection of its own, when the traced connection begins its
    statement number `at`."""

    def __init__(self, path: Path, at: int) -> None:
        self._path = path
        self._left = at

    def __call__(self, statement: str) -> None:
        self._left -= 1
        if self._left == 0:
            with sqlite3.connect(self._path) as other:
                other.execute("DELETE FROM memory")
            other.close()


@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_deletion_during_get_is_before_or_after_it(tmp_path: Path, at: int) -> None:
    path = tmp_path / "memory.db"
    database = open_database(path, [OWNER], synchronous="FULL")
    store = SqliteStore(database)
    await store.add([Memory(text="The kettle boils", id="k")])
    await database.read(lambda db: db.set_trace_callback(Interruption(path, at)))
    match = await store.get("k")
    assert match is None or match.text == "The kettle boils"
    await database.aclose()


async def test_a_file_from_before_triggers_opens_with_its_memories(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    make_file_without_triggers(path)
    database = open_database(path, [OWNER], synchronous="FULL")
    store = SqliteStore(database)
    stored = await store.get("k")
    assert stored is not None
    assert (stored.text, stored.triggers, stored.occurrences) == ("The kettle boils", (), 1)
    await store.add([Memory(text="Lids", id="l", triggers=("error:1",))])
    query = Query(texts=("kettle",), triggers=("error:1",))
    hits = await StoreRecall(store).search(query, Deadline.after(30.0))
    assert {hit.memory.id for hit in hits.hits} == {"k", "l"}
    await database.aclose()


async def test_a_damaged_file_from_before_triggers_is_salvaged(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    make_file_without_triggers(path)
    fresh = open_database(tmp_path / "fresh.db", [OWNER], synchronous="FULL")
    salvage = OWNER.salvage
    assert salvage is not None
    damaged = sqlite3.connect(path, check_same_thread=False)
    await fresh.write(lambda db: salvage(Source(damaged), db))
    damaged.close()
    stored = await SqliteStore(fresh).get("k")
    assert stored is not None
    assert stored.text == "The kettle boils"
    await fresh.aclose()


def make_file_without_triggers(path: Path) -> None:
    """A file as 0.1.0 wrote it, with one memory."""
    first = Owner("memory", OWNER.migrations[:1])
    values = {"n": 1, "tenant": "default", "id": "k", "text": "The kettle boils", "trust": "user"}
    values |= dict.fromkeys(("tags", "paths", "symbols"), "[]")
    values |= dict.fromkeys(("pinned", "created_at", "updated_at"), 0)
    empty = ("project", "source", "door", "server", "tool", "session", "extra", "keys")
    values |= dict.fromkeys((*empty, "namespace", "content_hash"), "")
    with sqlite3.connect(path, isolation_level=None) as db:
        migrate(db, first, path)
        marks = ", ".join("?" * len(values))
        db.execute(f"INSERT INTO memory ({', '.join(values)}) VALUES ({marks})", [*values.values()])
        db.execute("INSERT INTO scope VALUES (0, 'default', '', 1, 3, 1)")
        db.execute("INSERT INTO words (rowid, body, extra) VALUES (1, 'The kettle boils', '')")
        db.execute("INSERT INTO term VALUES ('kettl', 0, 1)")
    db.close()
