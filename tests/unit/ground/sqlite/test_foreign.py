"""Databases of other programs: read as they are, and left as they were."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from upwell.ground.errors import UsageError
from upwell.ground.sqlite.foreign import foreign_database, is_database


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE note (id, text)")
        connection.execute("INSERT INTO note VALUES (1, 'kettle')")
        connection.commit()
    return path


def rows_of(path: Path) -> list[dict[str, object]]:
    with foreign_database(path) as database:
        return list(database.rows("SELECT * FROM note ORDER BY id"))


def test_reading_leaves_nothing_beside_the_file(path: Path) -> None:
    before = path.read_bytes()
    assert rows_of(path) == [{"id": 1, "text": "kettle"}]
    assert [file.name for file in path.parent.iterdir()] == ["theirs.db"]
    assert path.read_bytes() == before


def test_uncheckpointed_writes_of_a_running_program_are_read(path: Path) -> None:
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("INSERT INTO note VALUES (2, 'teapot')")
        writer.commit()
        assert len(rows_of(path)) == 2


def test_the_columns_of_a_missing_table_are_empty(path: Path) -> None:
    with foreign_database(path) as database:
        assert database.columns("note") == {"id", "text"}
        assert database.columns("missing") == set()


def test_text_that_is_not_utf_8_is_read(path: Path) -> None:
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("UPDATE note SET text = CAST(x'6bff' AS TEXT)")
        writer.commit()
    assert rows_of(path)[0]["text"] == "k�"


@pytest.mark.parametrize("content", [None, b"not a database", b"SQLite format 3\0" + b"x" * 500])
def test_a_file_that_cannot_be_read_is_reported_in_one_line(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "odd.db"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"odd\.db") as error:
        rows_of(path)
    assert "\n" not in str(error.value)


def test_a_missing_column_is_reported_in_one_line(path: Path) -> None:
    with pytest.raises(UsageError, match="no such column"), foreign_database(path) as database:
        list(database.rows("SELECT colour FROM note"))


def test_a_database_is_recognised_by_its_beginning(path: Path, tmp_path: Path) -> None:
    assert is_database(path)
    assert not is_database(tmp_path / "missing")
    assert not is_database(tmp_path)
