"""Tables: arrays of similar objects, written as rows after a head that lists the keys.

    [{"…": "table", "same": {"on": true}, "columns": ["id", "at.day"], "∅": "no such key"},
     [7, 26], [8, "∅", {"by": "x"}], [9]]

A table is still an array. If a row ends early, the missing cells were left out. Values without a
column are in an object at the end of the row, under their names.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from math import log2
from statistics import fmean
from typing import NamedTuple

from msgspec import Struct, field

from upwell.compress.json.score import IDENTITIES, place_paths
from upwell.compress.json.tree import ARRAY, OBJECT, JsonNode, Outline
from upwell.ground.text.words import split_identifier

MIN_ROWS = 4
SIGN, NONE = "…", "∅"
ABSENT = -1
GAP = f'"{NONE}", '
HEAD = f'{{"{SIGN}": "table", "columns": [], "{NONE}": "no such key"}}, '
"""The head of a table without the names of its columns."""
_LIKE = 0.5
"""In each column, at least this share of the items of the array must have a value. At least this
share of all values must be in columns."""
_TABLE_SIGNS = (f'"{SIGN}', '"\\u2026', f'"{NONE}"', '"\\u2205"')
_STANDS_OUT = 2.0
"""A value keeps its own salience if it exceeds the salience of the column by this much."""
_LOOKS = 8
"""How often, on average, each value may be examined for tables. The limit bounds the work for
deeply nested arrays."""
_TIE = 1e-6
_LATER, _FIRST = 0.25, 16
"""Well beyond row `_FIRST`, a cell loses `_LATER` of salience each time its row number doubles. The
first rows therefore show more of their columns, and the budget still reaches many rows.
"""
_NAMING = 0.5
"""The column that names the rows gets the highest salience of all columns plus this much."""


class JsonTable(Struct):
    """An `array` whose items share key paths.

    `columns`: the dotted key paths, most salient first. `same`: the values that are equal in all
    rows, as a map from key path to units, one unit for each row. `depth`: for each column, the
    number of rows in which it was bought. `gaps`: whether any item lacks a column.
    """

    array: JsonNode
    columns: list[str] = field(default_factory=list)
    same: dict[str, list[int]] = field(default_factory=dict)
    depth: list[int] = field(default_factory=list)
    gaps: bool = False

    @property
    def is_worth_it(self) -> bool:
        """Whether enough rows were bought to write a head."""
        return bool(self.depth) and self.depth[0] >= MIN_ROWS

    @property
    def width(self) -> int:
        """The number of columns with a bought value."""
        return sum(rows > 0 for rows in self.depth)


class Cell(NamedTuple):
    """The position of a unit in a table."""

    table: JsonTable
    record: JsonNode
    column: int


class TableRow(Struct):
    """The `units` of item number `index`, one for each column, or `ABSENT` if the item lacks the
    column. The first `filled` units were bought. `alone` counts the bought units that appear only
    in the row, because their values are not in `selected` of any container.
    """

    table: JsonTable
    index: int
    units: list[int] = field(default_factory=list)
    filled: int = 0
    alone: int = 0


class Tables:
    """The tables of a document, and how many cells of each row have been bought.

    If a value is equal in all rows, the unit in the first row represents the others. `implied` maps
    each of the others to it.
    """

    def __init__(self) -> None:
        self.implied: dict[int, int] = {}
        self._nodes: Sequence[JsonNode] = ()
        self._cells: dict[int, Cell] = {}
        self._rows: dict[int, TableRow] = {}
        self._tables: dict[int, JsonTable] = {}
        self._before: dict[int, int] = {}
        self._alone: set[int] = set()

    def find(self, doc: Outline, text: str, saliences: MutableSequence[float]) -> None:
        """Find the tables of `doc`. Give the values of a column nearly equal `saliences`, so that
        columns are bought one after the other.

        If a string of the document begins with `…` or is `∅`, the document gets no tables. In a
        table, such a string is therefore always a mark.
        """
        if any(sign in text for sign in _TABLE_SIGNS):
            return
        self._nodes = doc.nodes
        end, work = -1, 0
        for array in _arrays(doc):
            if array.start < end:
                continue
            work += array.size
            if work > _LOOKS * len(doc.nodes):
                return
            columns = _columns(doc, array)
            if columns and sum(map(len, columns.values())) >= _LIKE * array.size:
                self._tables[id(array)] = self._make_table(doc, text, saliences, array, columns)
                end = array.end

    def of(self, node: JsonNode) -> JsonTable | None:
        """Return the table of the array `node`, or None."""
        return self._tables.get(id(node))

    def row(self, record: JsonNode) -> list[int]:
        """Return the bought units in the row of an item, including `ABSENT`."""
        row = self._rows.get(id(record))
        return row.units[: row.filled] if row is not None else []

    def shared(self, table: JsonTable) -> dict[str, JsonNode]:
        """Map names to the bought values that are equal in all rows."""
        firsts = ((name, self._nodes[units[0]]) for name, units in table.same.items())
        return {name: node for name, node in firsts if node.units}

    def repeated(self, record: JsonNode) -> list[JsonNode]:
        """Return the values of an item that are shown in the head of its table."""
        row = self._rows.get(id(record))
        if row is None:
            return []
        same = row.table.same
        return [self._nodes[same[name][row.index]] for name in self.shared(row.table)]

    def shown_in_row(self, record: JsonNode) -> int:
        """Count the values of an item that are shown only in its row or in the head of the
        table."""
        row = self._rows.get(id(record))
        if row is None or not row.table.is_worth_it:
            return 0
        return row.alone + sum(not node.units for node in self.repeated(record))

    def take(self, unit: int, nodes: Sequence[JsonNode]) -> Cell | None:
        """Record that `unit` was bought, if it is the next cell of its row.

        The cells after it join the row if they have already been bought. Returns the cell if its
        column has enough rows, so that the value needs no name of its own.
        """
        cell = self._cells.get(unit)
        if cell is None:
            return None
        row = self._rows[id(cell.record)]
        if any(other != ABSENT for other in row.units[row.filled : cell.column]):
            return None
        self._before[unit] = row.filled
        ahead = cell.column + 1
        while ahead < len(row.units) and row.units[ahead] >= 0 and nodes[row.units[ahead]].units:
            ahead += 1
        self._move(row, ahead)
        if cell.table.depth[cell.column] < MIN_ROWS:
            return None
        self._alone.add(unit)
        row.alone += 1
        return cell

    def gaps_before(self, cell: Cell) -> int:
        """Count the missing cells directly before a cell in its row."""
        units = self._rows[id(cell.record)].units
        gaps = 0
        while gaps < cell.column and units[cell.column - 1 - gaps] == ABSENT:
            gaps += 1
        return gaps

    def put_back(self, unit: int) -> JsonNode | None:
        """Undo the last `take()`. Returns the record if the unit was shown only in its row."""
        before = self._before.pop(unit, None)
        if before is None:
            return None
        cell = self._cells[unit]
        row = self._rows[id(cell.record)]
        self._move(row, before)
        if unit not in self._alone:
            return None
        self._alone.remove(unit)
        row.alone -= 1
        return cell.record

    def _move(self, row: TableRow, filled: int) -> None:
        for column in range(row.filled, filled):
            row.table.depth[column] += 1
        for column in range(filled, row.filled):
            row.table.depth[column] -= 1
        row.filled = filled

    def _make_table(
        self,
        doc: Outline,
        text: str,
        saliences: MutableSequence[float],
        array: JsonNode,
        columns: dict[int, dict[int, int]],
    ) -> JsonTable:
        table = JsonTable(array)
        rows = [TableRow(table, index) for index in range(len(array.items))]
        self._rows.update({id(item): row for item, row in zip(array.items, rows, strict=True)})
        worth = {
            path: fmean([saliences[unit] for unit in units.values()])
            for path, units in columns.items()
        }
        naming = _naming(doc, text, columns, len(rows))
        if naming in worth:
            worth[naming] = max(worth.values()) + _NAMING
        # A file and a line are bought with the first other value of their row (`score.py`).
        place = [path for path in _place(doc, columns) if path != naming]
        worth |= dict.fromkeys(place, min(worth.values()) - _NAMING)
        first = [path for path in (naming, *place) if path in worth]
        later = [_LATER * log2(1 + index / _FIRST) for index in range(len(rows))]
        others = sorted(columns.keys() - first, key=lambda path: (-worth[path], path))
        for path in (*first, *others):
            units = list(columns[path].values())
            if len({_value(doc, text, unit) for unit in units}) == 1:
                if len(units) == len(rows):
                    table.same[_name(doc, path, array)] = units
                    self.implied.update(dict.fromkeys(units[1:], units[0]))
                continue
            table.gaps |= len(units) < len(rows)
            for index, (item, row) in enumerate(zip(array.items, rows, strict=True)):
                unit = columns[path].get(index, ABSENT)
                row.units.append(unit)
                if unit != ABSENT:
                    self._cells[unit] = Cell(table, item, len(table.columns))
                    if saliences[unit] < worth[path] + _STANDS_OUT:
                        saliences[unit] = worth[path] - _TIE * len(table.columns) - later[index]
            table.columns.append(_name(doc, path, array))
            table.depth.append(0)
        return table


def _naming(doc: Outline, text: str, columns: Mapping[int, Mapping[int, int]], rows: int) -> int:
    """Return the path of the column that distinguishes the rows, or -1 if there is none.

    Keys earlier in `IDENTITIES` are better. In a tie, a whole key is better than the end of a
    longer one (`name` before `generateName`). After that, a shallow path is better than a deep one
    (`metadata.name` before `metadata.owner.name`).
    """
    best, least = -1, (len(IDENTITIES), False, 0)
    for path, units in columns.items():
        words = split_identifier(doc.keys[path].strip('"'))
        if len(units) < rows or not words or words[-1] not in IDENTITIES:
            continue
        rank = (IDENTITIES.index(words[-1]), len(words) > 1, _depth(doc, path))
        if rank < least and len({_value(doc, text, unit) for unit in units.values()}) > 0.9 * rows:
            best, least = path, rank
    return best


def _place(doc: Outline, columns: Mapping[int, Mapping[int, int]]) -> list[int]:
    """Return the columns that give the file and the line of each row, or nothing."""
    files, lines = ([path for path in paths if path in columns] for paths in place_paths(doc))
    if not files or not lines:
        return []
    return [min(paths, key=lambda path: _depth(doc, path)) for paths in (files, lines)]


def _depth(doc: Outline, path: int) -> int:
    depth = 0
    while (path := doc.parents[path]) >= 0:
        depth += 1
    return depth


def _value(doc: Outline, text: str, unit: int) -> str:
    return text[doc.starts[unit] : doc.ends[unit]]


def _arrays(doc: Outline) -> Iterator[JsonNode]:
    for box in doc.boxes:
        if box.kind != ARRAY or len(box.items) < MIN_ROWS:
            continue
        if all(item.kind == OBJECT and item.items for item in box.items):
            yield box


def _columns(doc: Outline, array: JsonNode) -> dict[int, dict[int, int]]:
    """Map key path → position of the item → unit, for whole values that occur in at
    least half of the items and at most once in each item."""
    columns: dict[int, dict[int, int]] = {}
    unfit: set[int] = set()
    places = {id(item): index for index, item in enumerate(array.items)}
    first, after = bisect_left(doc.starts, array.start), bisect_left(doc.starts, array.end)
    parent, index = None, -1
    for unit in range(first, after):
        node = doc.nodes[unit]
        if node.parent is not parent:
            parent = node.parent
            index = places.get(id(_record(node, array)), -1)
        column = columns.get(node.path)
        if column is None:
            column = columns[node.path] = {}
        if index < 0 or index in column or doc.ends[unit] != node.end:
            unfit.add(node.path)
        column[index] = unit
    return {
        path: units
        for path, units in columns.items()
        if len(units) >= _LIKE * len(array.items) and path not in unfit and _name(doc, path, array)
    }


def _record(node: JsonNode, array: JsonNode) -> JsonNode | None:
    """Return the item of `array` around a value, or None if an array of several items lies
    between them."""
    box = node.parent
    while box is not None and box.parent is not array:
        if box.kind == ARRAY and len(box.items) > 1:
            return None
        box = box.parent
    return box


def _name(doc: Outline, path: int, array: JsonNode) -> str:
    """Return the dotted key path of a column, or "" if it would be ambiguous."""
    keys: list[str] = []
    top = array.items[0].path
    while path != top:
        key = doc.keys[path]
        keys.append("0" if key == "[]" else key[1:-1])
        path = doc.parents[path]
    clear = all(key and "." not in key for key in keys)
    return ".".join(reversed(keys)) if clear else ""
