"""A file that has lost its header is read all the same: its pages reveal their size."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from upwell.ground.sqlite.pages import rows_by_table, tables_of

ROWS = 120


@pytest.mark.parametrize("size", [1024, 4096, 8192, 16384])
@pytest.mark.parametrize("chars", [40, 3_000, 20_000])
def test_every_row_is_found_without_the_header(tmp_path: Path, size: int, chars: int) -> None:
    """Long rows fill overflow pages, which do not begin as b-tree pages do."""
    path = tmp_path / "file.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA page_size = {size}")
        db.execute("CREATE TABLE note (n INTEGER PRIMARY KEY, text TEXT NOT NULL)")
        texts = [(f"{number} " + "quokka " * (chars // 7),) for number in range(ROWS)]
        db.execute("BEGIN")
        db.executemany("INSERT INTO note (text) VALUES (?)", texts)
        db.execute("COMMIT")
        tables = tables_of(db)
    with path.open("r+b") as file:
        file.write(b"\xa5" * 100)
    assert len(list(rows_by_table(path, tables))) == ROWS


def test_no_damage_of_the_pages_stops_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("CREATE TABLE note (n INTEGER PRIMARY KEY, at REAL, text TEXT NOT NULL, x BLOB)")
        db.execute("CREATE TABLE word (word TEXT PRIMARY KEY, count INTEGER) WITHOUT ROWID")
        db.execute("BEGIN")
        for number in range(ROWS):
            values = (number / 7, f"{number} " + "quokka " * (number * 9), bytes(number))
            db.execute("INSERT INTO note (at, text, x) VALUES (?, ?, ?)", values)
            db.execute("INSERT INTO word VALUES (?, ?)", (f"word {number}", number))
        db.execute("COMMIT")
        tables = tables_of(db)
    sound = path.read_bytes()
    found = []
    for seed in range(150):
        chance, damaged = random.Random(seed), bytearray(sound)
        for page in range(0, len(sound), 4096):
            for _ in range(chance.randrange(4)):
                damaged[page + chance.randrange(4096)] = chance.randrange(256)
        path.write_bytes(damaged)
        found.append(len(list(rows_by_table(path, tables))))
    assert sorted(found)[len(found) // 2] > 1.8 * ROWS
