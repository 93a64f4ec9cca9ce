"""The rows that SQLite can still read from a damaged file."""

import sqlite3
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any, Literal

UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError, MemoryError)
"""The errors that the `sqlite3` module raises because of damage."""
MAX_FAILURES = 20_000
"""How many reads of one table may fail before the rest of its rows is given up."""
SINGLE_STEPS = 1_000
"""How many keys after an unreadable row are tried one by one."""
_MAX_KEY = 2**63 - 1


class DamagedFile:
    """The rows of a file that may be damaged. `is_complete` becomes False if one of the tables read
    so far has unreadable rows."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.is_complete = True
        db.text_factory = _lenient
        with suppress(*UNREADABLE):
            # SQLite then reads truncated files and what is intact of a damaged schema.
            db.execute("PRAGMA writable_schema = ON")

    def columns(self, table: str) -> list[str]:
        """Return the names of the table's columns; none if the table cannot be read."""
        try:
            rows = self.db.execute(f"SELECT * FROM {table} LIMIT 0").description
        except UNREADABLE:
            self.is_complete = False
            return []
        return [row[0] for row in rows]

    def rows(self, table: str, columns: str, key: str = "rowid") -> Iterator[tuple[Any, ...]]:
        """Yield all readable rows of a table, each as the integer key followed by the columns.

        The table is read forwards. After an unreadable row, the keys that follow are tried one by
        one, and then at growing distances, so the rows behind the damage are read backwards, too. A
        row may come twice."""
        if not self.columns(table):
            return
        select = f"SELECT {key}, {columns} FROM {table} WHERE {key}"
        first_failure = yield from self._rows_from(select, key, 0, "ASC")
        if first_failure is not None:
            self.is_complete = False
            yield from self._rows_from(select, key, first_failure, "DESC")

    def _rows_from(
        self, select: str, key: str, floor: int, order: Literal["ASC", "DESC"]
    ) -> Generator[tuple[Any, ...], None, int | None]:
        """Yield the rows with keys of at least `floor`. Returns the first key that failed."""
        at, sign, limit = (floor, 1, ">=") if order == "ASC" else (_MAX_KEY, -1, "<=")
        ordered = f"{select} {limit} ? AND {key} >= ? ORDER BY {key} {order}"
        failures, consecutive, first_failure = 0, 0, None
        while floor <= at <= _MAX_KEY and failures < MAX_FAILURES:
            try:
                for row in self.db.execute(ordered, (at, floor)):
                    at, consecutive = row[0] + sign, 0
                    yield row
                break
            except UNREADABLE:
                first_failure = at if first_failure is None else first_failure
            # `sqlite3` reads ahead by one row, so the row before the damage has failed with it.
            failures, consecutive = failures + 1, consecutive + 1
            with suppress(*UNREADABLE):
                for row in self.db.execute(f"{select} = ?", (at,)).fetchall():
                    consecutive = 0
                    yield row
            at += sign * 2 ** max(0, consecutive - SINGLE_STEPS)
        return first_failure

    def rows_without_rowid(self, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows before the first unreadable one, and those after the last. A row may come
        twice."""
        key = [row[1] for row in self.db.execute(f"PRAGMA table_info({table})") if row[5]]
        for order in ("ASC", "DESC"):
            ordered = ", ".join(f'"{column}" {order}' for column in key)
            query, count = f"SELECT {columns} FROM {table} ORDER BY {ordered}", 0
            try:
                for row in self.db.execute(query):
                    count += 1
                    yield row
                return
            except UNREADABLE:
                self.is_complete = False
            with suppress(*UNREADABLE):
                yield from self.db.execute(f"{query} LIMIT 1 OFFSET {count}").fetchall()


def _lenient(text: bytes) -> str:
    return text.decode("utf-8", "replace")
