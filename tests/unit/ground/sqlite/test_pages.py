"""A file without its header is read by the size of its pages, which the pages themselves tell."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from upwell.ground.sqlite.pages import rows_by_table, tables_of

ROWS = 120


@pytest.mark.parametrize("size", [1024, 4096, 8192, 16384])
@pytest.mark.parametrize("chars", [40, 3_000, 20_000])
def test_every_row_is_found_without_the_header(tmp_path: Path, size: int, chars: int) -> None:
    """Long rows fill pages of their own, which do not begin like one of a b-tree."""
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
