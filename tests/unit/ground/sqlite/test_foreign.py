"""A database of another program costs bounded time and memory, whatever it contains."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from upwell.ground.errors import UsageError
from upwell.ground.foreign import read_text
from upwell.ground.sqlite.foreign import foreign_database, is_database

ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c)"


def database(folder: Path, schema: str) -> Path:
    path = folder / "foreign.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(schema)
    return path


def count(path: Path, statement: str = "SELECT * FROM notes") -> int:
    with foreign_database(path) as foreign:
        return sum(1 for _ in foreign.rows(statement))


@pytest.mark.parametrize(
    "schema",
    [
        f"CREATE VIEW notes AS {ENDLESS} SELECT n FROM c",
        f"CREATE VIEW notes AS {ENDLESS} SELECT count(*) AS n FROM c",
        "CREATE VIEW notes AS SELECT hex(zeroblob(400000000)) AS n",
        "CREATE TABLE notes(n, m AS (hex(zeroblob(n)))); INSERT INTO notes(n) VALUES (30000000)",
    ],
)
def test_what_the_file_computes_is_not_read(tmp_path: Path, schema: str) -> None:
    with pytest.raises(UsageError, match="prohibited"):
        count(database(tmp_path, schema))


def test_a_table_beside_views_and_triggers_is_read(tmp_path: Path) -> None:
    schema = f"""
        CREATE TABLE notes(n); CREATE TABLE log(n); INSERT INTO notes VALUES (1), (2);
        CREATE VIEW shown AS {ENDLESS} SELECT n FROM c;
        CREATE VIRTUAL TABLE found USING fts5(n);
        CREATE TRIGGER noted AFTER INSERT ON notes BEGIN INSERT INTO log VALUES (1); END;
    """
    assert count(database(tmp_path, schema)) == 2


def test_a_join_yields_no_more_rows_than_the_file_can_hold(tmp_path: Path) -> None:
    values = ", ".join(f"({number})" for number in range(300))
    path = database(tmp_path, f"CREATE TABLE notes(n); INSERT INTO notes VALUES {values}")
    with pytest.raises(UsageError, match="more rows than the file can hold"):
        count(path, "SELECT a.n FROM notes a, notes b, notes c")


def test_a_pipe_a_folder_and_a_device_are_no_files(tmp_path: Path) -> None:
    pipe, device = tmp_path / "pipe", tmp_path / "device"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    for path in (pipe, device, tmp_path):
        assert not is_database(path)
        with pytest.raises(UsageError, match="not a file"), foreign_database(path):
            pass
        with pytest.raises(UsageError, match="cannot read"):
            read_text(path)


def test_rows_that_share_their_pages_do_not_unfold_without_end(tmp_path: Path) -> None:
    values = ", ".join("('g', 'some text of a row')" for _ in range(2_000))
    path = database(tmp_path, f"CREATE TABLE notes(g, n); INSERT INTO notes VALUES {values}")
    texts = "SELECT (SELECT group_concat(n) FROM notes b WHERE b.g = a.g) AS n FROM notes a"
    with pytest.raises(UsageError, match="larger than the file"):
        count(path, texts)
    assert count(path, "SELECT n FROM notes") == 2_000
