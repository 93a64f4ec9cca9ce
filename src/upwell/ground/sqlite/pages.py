"""Read the rows of a damaged SQLite file page by page, without SQLite.

SQLite reads nothing from a file whose header or schema is damaged, even if most pages are intact.
This module needs neither the header nor the schema. It collects the leaf pages of every b-tree and
decodes the records. A table is recognised by the shape of its rows. If several tables fit, the
schema decides, provided that it can be read. Pages in the write-ahead log replace those in the
file. The format is described at https://www.sqlite.org/fileformat2.html.
"""

import sqlite3
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

Value = int | float | str | bytes | None
Row = tuple[Value, ...]

TABLE_LEAF, TABLE_INTERIOR = 0x0D, 0x05
INDEX_LEAF, INDEX_INTERIOR = 0x0A, 0x02
PAGE_SIZES = (4096, 1024, 2048, 8192, 16384, 32768, 512)
"""The page sizes to try if the header is damaged. The first is SQLite's default."""
NEARLY = 0.6
MAX_PAYLOAD = 64_000_000
_MAGIC = b"SQLite format 3\0"
_WAL_HEADER, _FRAME_HEADER = 32, 24
_MAX_DEPTH = 64


class Table(Struct, frozen=True):
    """A table in the schema that the file should have.

    `columns`: the name and declared type of each column, and whether it is NOT NULL. `min_columns`:
    the number of columns that every row has. Rows written before a migration lack the columns that
    the migration added. `alias`: the position of the column that is an alias of the rowid, or -1.
    `has_rowid`: False for a WITHOUT ROWID table.
    """

    name: str
    columns: tuple[tuple[str, str, bool], ...]
    min_columns: int
    alias: int
    has_rowid: bool

    def fits(self, row: Row) -> bool:
        """Return whether a stored row could belong to this table."""
        if not self.min_columns <= len(row) <= len(self.columns):
            return False
        return all(
            index == self.alias or _fits(value, kind, required)
            for index, (value, (_, kind, required)) in enumerate(
                zip(row, self.columns, strict=False)
            )
        )


def _fits(value: Value, kind: str, required: bool) -> bool:
    if value is None:
        return not required
    if kind in ("INTEGER", "INT"):
        return isinstance(value, int)
    if kind == "REAL":
        return isinstance(value, int | float)
    if kind == "TEXT":
        return isinstance(value, str)
    return kind != "BLOB" or isinstance(value, bytes)


def tables_of(db: sqlite3.Connection) -> list[Table]:
    """Describe the ordinary tables of a sound database. They include the tables in which a text
    index stores its data."""
    tables = []
    for name, sql in db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"):
        if sql.upper().startswith("CREATE VIRTUAL"):
            continue
        rows = db.execute(f'PRAGMA table_info("{name}")').fetchall()
        columns = tuple((row[1], row[2].upper(), bool(row[3])) for row in rows)
        min_columns = max((row[0] + 1 for row in rows if row[4] is None), default=0)
        has_rowid = "WITHOUT ROWID" not in sql.upper()
        keys = [row[0] for row in rows if row[5]]
        is_alias = has_rowid and len(keys) == 1 and columns[keys[0]][1] == "INTEGER"
        tables.append(Table(name, columns, min_columns, keys[0] if is_alias else -1, has_rowid))
    return tables


def rows_by_table(path: Path, tables: Sequence[Table]) -> Iterator[tuple[Table, Row]]:
    """Yield the readable rows on the leaf pages of all recognised tables, with their rowids filled
    in."""
    with path.open("rb") as file:
        pages = _Pages(file, Path(f"{path}-wal"))
        named = pages.named_roots()
        for root, leaves in pages.trees().items():
            table = _recognised(pages, leaves, tables, named.get(root, ""))
            if table is None:
                continue
            for number, row in pages.rows(leaves):
                if table.fits(row):
                    yield table, _numbered(row, number, table.alias)


def _numbered(row: Row, number: int, alias: int) -> Row:
    return row if alias < 0 else (*row[:alias], number, *row[alias + 1 :])


def _recognised(
    pages: "_Pages", leaves: Sequence[int], tables: Sequence[Table], name: str
) -> Table | None:
    """Return the table that a tree belongs to, or None if that is not clear.

    The rows on the first leaves are compared with each table, and the tables that fit the most rows
    are candidates. If there are several, `name`, the tree's name in the schema, decides."""
    is_table = pages.kind(leaves[0]) == TABLE_LEAF
    votes = dict.fromkeys((table.name for table in tables if table.has_rowid == is_table), 0)
    by_name = {table.name: table for table in tables}
    for _, row in pages.rows(leaves[:8]):
        for candidate in votes:
            votes[candidate] += by_name[candidate].fits(row)
    most = max(votes.values(), default=0)
    best = [candidate for candidate, count in votes.items() if count == most and most]
    if name in best:
        return by_name[name]
    return by_name[best[0]] if len(best) == 1 else None


class _Pages:
    """The last committed version of each page."""

    def __init__(self, file: BinaryIO, wal: Path) -> None:
        self._file = file
        file.seek(0, 2)
        self._bytes = file.tell()
        self.size, self._reserved = self._sizes()
        self._newer: Mapping[int, bytes] = {}
        with suppress(OSError, struct.error):
            self._newer = _from_log(wal.read_bytes(), self.size)
        self.last = max(self._bytes // self.size, *self._newer, 0)

    def _sizes(self) -> tuple[int, int]:
        self._file.seek(0)
        header = self._file.read(100)
        if header.startswith(_MAGIC):
            size = int.from_bytes(header[16:18], "big")
            size = 65536 if size == 1 else size
            if size >= 512 and size & (size - 1) == 0:
                return size, header[20]
        return self._likely_size(), 0

    def _likely_size(self) -> int:
        """For each page size, measure the share of pages that begin like b-tree pages. Return the
        smallest size whose share is close to the largest share. Multiples of the true size have
        similar shares, and may have the largest by chance, because they give fewer pages."""
        shares = {size: self._leaf_share(size) for size in sorted(PAGE_SIZES)}
        enough = NEARLY * max(shares.values())
        return next((size for size, share in shares.items() if share >= enough), PAGE_SIZES[0])

    def _leaf_share(self, size: int) -> float:
        kinds = (TABLE_LEAF, TABLE_INTERIOR, INDEX_LEAF, INDEX_INTERIOR)
        starts = range(size, min(self._bytes, size * 200), size)
        count = 0
        for at in starts:
            self._file.seek(at)
            count += self._file.read(1) in map(bytes, ([kind] for kind in kinds))
        return count / max(1, len(starts))

    def page(self, number: int) -> bytes:
        newer = self._newer.get(number)
        if newer is not None:
            return newer
        self._file.seek((number - 1) * self.size)
        return self._file.read(self.size)

    def kind(self, number: int) -> int:
        page = self.page(number)
        start = _start(number)
        return page[start] if len(page) > start else 0

    def trees(self) -> dict[int, list[int]]:
        """Map each tree's root, or its highest surviving page, to the tree's leaves."""
        parents: dict[int, int] = {}
        leaves = []
        for number in range(1, self.last + 1):
            kind = self.kind(number)
            if kind in (TABLE_LEAF, INDEX_LEAF):
                leaves.append(number)
            elif kind in (TABLE_INTERIOR, INDEX_INTERIOR):
                parents.update(dict.fromkeys(self._children(number), number))
        leaves_by_root = defaultdict(list)
        for leaf in leaves:
            leaves_by_root[_root(leaf, parents)].append(leaf)
        return leaves_by_root

    def named_roots(self) -> dict[int, str]:
        rows = (row for _, row in self.rows(self.trees().get(1, [])))
        return {row[3]: str(row[1]) for row in rows if len(row) == 5 and isinstance(row[3], int)}

    def rows(self, leaves: Sequence[int]) -> Iterator[tuple[int, Row]]:
        """Yield the rowid and the values of each readable row."""
        for leaf in leaves:
            page = self.page(leaf)
            for offset in _cells(page, leaf, 8):
                with suppress(IndexError, ValueError, struct.error):
                    yield self._row(page, offset, page[_start(leaf)] == TABLE_LEAF)

    def _children(self, number: int) -> Iterator[int]:
        page = self.page(number)
        start = _start(number)
        yield int.from_bytes(page[start + 8 : start + 12], "big")
        for offset in _cells(page, number, 12):
            yield int.from_bytes(page[offset : offset + 4], "big")

    def _row(self, page: bytes, at: int, is_table: bool) -> tuple[int, Row]:
        length, at = _varint(page, at)
        number = 0
        if is_table:
            number, at = _varint(page, at)
        return number, _record(self._payload(page, at, length, is_table))

    def _payload(self, page: bytes, at: int, length: int, is_table: bool) -> bytes:
        usable = self.size - self._reserved
        most = usable - 35 if is_table else (usable - 12) * 64 // 255 - 23
        if not 0 < length <= MAX_PAYLOAD:
            raise ValueError(length)
        if length <= most:
            return page[at : at + length]
        least = (usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (usable - 4)
        local = local if local <= most else least
        parts, missing = [page[at : at + local]], length - local
        following = int.from_bytes(page[at + local : at + local + 4], "big")
        for _ in range(missing // (usable - 4) + 1):
            if missing <= 0 or not 0 < following <= self.last:
                break
            overflow = self.page(following)
            parts.append(overflow[4 : 4 + min(missing, usable - 4)])
            missing -= len(parts[-1])
            following = int.from_bytes(overflow[:4], "big")
        if missing:
            raise ValueError("the rest of the record is lost")
        return b"".join(parts)


def _start(number: int) -> int:
    """The first page begins with the file's header."""
    return 100 if number == 1 else 0


def _cells(page: bytes, number: int, header: int) -> list[int]:
    start = _start(number)
    count = int.from_bytes(page[start + 3 : start + 5], "big")
    places = page[start + header : start + header + 2 * count]
    return [offset for (offset,) in struct.iter_unpack(">H", places[: len(places) // 2 * 2])]


def _root(page: int, parents: Mapping[int, int]) -> int:
    for _ in range(_MAX_DEPTH):
        if page not in parents:
            break
        page = parents[page]
    return page


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(8):
        byte = data[at + index]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    value = value << 8 | data[at + 8]
    return value - (1 << 64) if value >> 63 else value, at + 9


def _record(payload: bytes) -> Row:
    end, at = _varint(payload, 0)
    kinds = []
    while at < end:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    values = []
    for kind in kinds:
        value, end = _value(payload, end, kind)
        values.append(value)
    return tuple(values)


def _value(data: bytes, at: int, kind: int) -> tuple[Value, int]:
    if kind >= 12:
        end = at + (kind - 12) // 2
        if end > len(data):
            raise ValueError("a value is longer than its record")
        content = data[at:end]
        return (content.decode("utf-8", "replace") if kind % 2 else content), end
    if kind in (0, 8, 9):
        return {0: None, 8: 0, 9: 1}[kind], at
    if kind in (10, 11):
        raise ValueError("a type that no record has")
    end = at + {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 8}[kind]
    if kind == 7:
        return float(struct.unpack(">d", data[at:end])[0]), end
    return int.from_bytes(data[at:end], "big", signed=True), end


def _from_log(log: bytes, size: int) -> dict[int, bytes]:
    """Return the committed pages of a write-ahead log: those up to the last commit, in frames
    whose salts match the log's header."""
    generation = log[16:24]
    committed: dict[int, bytes] = {}
    pending: dict[int, bytes] = {}
    for at in range(_WAL_HEADER, len(log) - _FRAME_HEADER - size + 1, _FRAME_HEADER + size):
        number, pages_after_commit = struct.unpack(">II", log[at : at + 8])
        if log[at + 8 : at + 16] != generation:
            break
        pending[number] = log[at + _FRAME_HEADER : at + _FRAME_HEADER + size]
        if pages_after_commit:
            committed |= pending
            pending = {}
    return committed
