"""The SQLite store: reads of one moment, forced between the statements of a real connection."""

import sqlite3
from pathlib import Path

import pytest

from upwell.ground.sqlite.database import open_database
from upwell.ground.types.memory import Memory
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
    found = await store.get("k")
    assert found is None or found.text == "The kettle boils"
    await database.aclose()
