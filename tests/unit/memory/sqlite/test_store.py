"""The SQLite store: a read sees one snapshot, even during deletions."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from upwell.ground.errors import StoreTooOld
from upwell.ground.sqlite.database import Owner, open_database
from upwell.ground.sqlite.file import migrate
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
    match = await store.get("k")
    assert match is None or match.text == "The kettle boils"
    await database.aclose()


def test_a_file_of_version_0_1_0_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        migrate(db, Owner("memory", OWNER.migrations[:1]), path)
    before = path.read_bytes()
    with pytest.raises(StoreTooOld, match=r"upwell 0\.1\.0"):
        open_database(path, [OWNER], synchronous="FULL")
    assert path.read_bytes()[100:] == before[100:]
