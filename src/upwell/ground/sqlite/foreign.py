"""Another program's SQLite database, opened read-only."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from upwell.ground.errors import UsageError

BUSY_TIMEOUT_SECONDS = 8.0
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
QUERY_SECONDS = 60.0
"""The time limit for reading the first row, and then for each further row."""
STEPS = 100_000
MAX_VALUE_BYTES = 64_000_000
_MIN_ROW_BYTES = 4
MAX_COPIES = 4
"""The rows of a query may be up to this many times as large as the file, because several rows may
contain the same stored text. Larger results come only from forged files, whose rows share pages."""
SLACK_BYTES = 1_000_000
_COMPUTED = """
SELECT name FROM sqlite_schema WHERE type = 'view'
UNION SELECT tables.name
FROM (SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '%AS%(%') AS tables,
     pragma_table_xinfo(tables.name) AS columns
WHERE columns.hidden IN (2, 3)
"""
"""A query for the names of views and of tables with a computed column."""
_HEADER = b"SQLite format 3\0"


def refuse_computed(connection: sqlite3.Connection) -> None:
    """Refuse to read views, tables with computed columns, and values over `MAX_VALUE_BYTES`."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    connection.execute("PRAGMA trusted_schema = OFF")
    computed = {name.lower() for (name,) in connection.execute(_COMPUTED)}

    def allowed(action: int, table: str | None, *_: str | None) -> int:
        is_computed = action == sqlite3.SQLITE_READ and (table or "").lower() in computed
        return sqlite3.SQLITE_DENY if is_computed else sqlite3.SQLITE_OK

    connection.set_authorizer(allowed)


class ForeignDatabase:
    """The tables of another program's database.

    Text that is not UTF-8 is read with replacement characters. Views, and tables with computed
    columns, cannot be read, because their content could be endless. The size of the file,
    `file_bytes`, limits the number of rows in each result and the total size of all rows.
    """

    def __init__(self, connection: sqlite3.Connection, file_bytes: int) -> None:
        self._connection = connection
        self._max_rows = file_bytes // _MIN_ROW_BYTES
        self._bytes_left = MAX_COPIES * file_bytes + SLACK_BYTES
        self._ends = time.monotonic() + QUERY_SECONDS
        refuse_computed(connection)
        connection.set_progress_handler(lambda: time.monotonic() > self._ends, STEPS)

    def columns(self, table: str) -> set[str]:
        """Return the columns of a table. The set is empty if the table does not exist."""
        rows = self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        return {name for (name,) in rows}

    def rows(self, statement: str, values: tuple[object, ...] = ()) -> Iterator[dict[str, Any]]:
        """Yield the rows of a query, each as a mapping from column names to values."""
        cursor = self._connection.execute(statement, values)
        names = [column[0] for column in cursor.description]
        for number, row in enumerate(cursor):
            if number >= self._max_rows:
                raise sqlite3.DatabaseError("a table has more rows than the file can hold")
            self._bytes_left -= sum(len(value) for value in row if isinstance(value, str | bytes))
            if self._bytes_left < 0:
                raise sqlite3.DatabaseError("the rows are larger than the file that holds them")
            yield dict(zip(names, row, strict=True))
            self._ends = time.monotonic() + QUERY_SECONDS


def is_database(path: Path) -> bool:
    """Return whether the file begins like a SQLite database."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(_HEADER)) == _HEADER
    except OSError:
        return False


def _mode(path: Path) -> str:
    """Return the mode in which to open the file. Reading a database in WAL mode creates two more
    files, unless SQLite is told that the database is immutable. A database without a log has no
    writer, so it is opened as immutable.
    """
    has_log = any(Path(f"{path}{ending}").exists() for ending in ("-wal", "-journal"))
    return "mode=ro" if has_log else "mode=ro&immutable=1"


@contextmanager
def foreign_database(path: Path) -> Iterator[ForeignDatabase]:
    """Open another program's database. An SQLite error in the block also becomes a `UsageError`.

    Raises:
        UsageError: the file is missing, locked, damaged, or lacks an expected column.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"cannot read {path}: it is not a file")
    try:
        address = f"file:{quote(str(path.absolute()))}?{_mode(path)}"
        connection = sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_SECONDS)
        with closing(connection):
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            # All reads are in one transaction, because the other program may be writing.
            connection.execute("BEGIN")
            yield ForeignDatabase(connection, path.stat().st_size)
    except sqlite3.Error as error:
        is_locked = getattr(error, "sqlite_errorcode", 0) in _LOCKED
        hint = "stop the program that writes it" if is_locked else "check that it is the right file"
        raise UsageError(f"cannot read {path}: {error}", hint=hint) from error
