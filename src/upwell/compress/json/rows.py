"""Arrays of like objects, written as rows: each key once in front, then the values.

    [{"…": "table", "same": {"on": true}, "columns": ["id", "at.day"], "∅": "no such key"},
     [7, 26], [8, "∅", {"by": "x"}], [9]]

The array stays an array. A row may end early: what it lacks on the right was left out. Whatever is
no column stands by its name in an object at the end of the row.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from math import log2
from statistics import fmean
from typing import NamedTuple

from upwell.compress.json.outline import Outline
from upwell.compress.json.score import IDENTITIES
from upwell.compress.json.tree import ARRAY, OBJECT, Node
from upwell.ground.text.words import split_identifier

MIN_ROWS = 4
SIGN, NONE = "…", "∅"
ABSENT = -1
GAP = f'"{NONE}", '
HEAD = f'{{"{SIGN}": "table", "columns": [], "{NONE}": "no such key"}}, '
"""What stands in front of the rows, before the names of columns."""
_LIKE = 0.5
"""The share of items that must have a column, and of an array's values that must be in columns."""
_OURS = (f'"{SIGN}', '"\\u2026', f'"{NONE}"', '"\\u2205"')
_STANDS_OUT = 2.0
"""A value that is worth so much more than its column is shown for itself."""
_LOOKS = 8
"""How often a value may be looked at for a table: arrays may stand in one another without end."""
_TIE = 1e-6
_LATER, _FIRST = 0.25, 16
"""What a cell loses with each doubling of the rows before it, from so many on: the first rows show
more of their columns, and the budget still reaches far down."""
_NAMING = 0.5
"""By how much the column that names the rows comes before the others."""


@dataclass(slots=True)
class Table:
    """An array whose items have values in common. `columns`: their dotted key paths, the most
    telling first; `same`: key path → the first of values that are equal in all rows; `depth`: for
    each column, the rows that have been bought; `gaps`: are there items without a column?"""

    array: Node
    columns: list[str] = field(default_factory=list)
    same: dict[str, Node] = field(default_factory=dict)
    depth: list[int] = field(default_factory=list)
    gaps: bool = False

    @property
    def is_worth_it(self) -> bool:
        """Are there enough rows to give the names a line of their own?"""
        return bool(self.depth) and self.depth[0] >= MIN_ROWS

    @property
    def width(self) -> int:
        """How many columns hold something."""
        return sum(rows > 0 for rows in self.depth)


class Cell(NamedTuple):
    """Where a unit stands: its table, its row, the number of its column."""

    table: Table
    record: Node
    column: int


@dataclass(slots=True)
class Row:
    """The units of one item by column, `ABSENT` where it has none; the first `filled` of them were
    bought, and `alone` of these stand in no container and can be written in a row only."""

    table: Table
    units: list[int] = field(default_factory=list)
    filled: int = 0
    alone: int = 0


class Tables:
    """The tables of a document, and how far each row has been bought.

    `implied` are the units that a table's `same` speaks for.
    """

    def __init__(self) -> None:
        self.implied: set[int] = set()
        self._cells: dict[int, Cell] = {}
        self._rows: dict[int, Row] = {}
        self._tables: dict[int, Table] = {}
        self._before: dict[int, int] = {}
        self._alone: set[int] = set()

    def find(self, doc: Outline, text: str, needed: MutableSequence[float]) -> None:
        """Find the tables of `doc`, and give the values of a column one worth in `needed`, so that
        columns are bought one after the other. A document with a key that begins with our sign has
        none, so that a table is always ours."""
        if any(sign in text for sign in _OURS):
            return
        end, work = -1, 0
        for array in _arrays(doc):
            if array.start < end:
                continue
            work += array.size
            if work > _LOOKS * len(doc.nodes):
                return
            found = _columns(doc, array)
            if found and sum(map(len, found.values())) >= _LIKE * array.size:
                self._tables[id(array)] = self._made(doc, text, needed, array, found)
                end = array.end

    def of(self, node: Node) -> Table | None:
        """The table that `node` is, if it is one."""
        return self._tables.get(id(node))

    def row(self, record: Node) -> list[int]:
        """The units of an item that stand in its row, `ABSENT` among them."""
        row = self._rows.get(id(record))
        return row.units[: row.filled] if row is not None else []

    def shared(self, table: Table) -> dict[str, Node]:
        """The values that are said once for all rows, by name, as far as they were bought."""
        return {name: node for name, node in table.same.items() if node.units}

    def told_beside(self, record: Node) -> int:
        """How many values of an item are told in its row or for all rows, and stand in no
        container of it."""
        row = self._rows.get(id(record))
        if row is None or not row.table.is_worth_it:
            return 0
        first = record is row.table.array.items[0]
        return row.alone + (0 if first else len(self.shared(row.table)))

    def take(self, unit: int, nodes: Sequence[Node]) -> Cell | None:
        """Note that `unit` is bought, where it is the next of its row; those after it that were
        bought before by their names follow. Returns its cell if enough rows of the column were
        bought before it, so that it needs no name of its own."""
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
        """How many columns right before a cell that was taken its row does not have."""
        units = self._rows[id(cell.record)].units
        gaps = 0
        while gaps < cell.column and units[cell.column - 1 - gaps] == ABSENT:
            gaps += 1
        return gaps

    def put_back(self, unit: int) -> Node | None:
        """Undo `take` of the last unit. Returns the row if the unit stood in no container."""
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

    def _move(self, row: Row, filled: int) -> None:
        for column in range(row.filled, filled):
            row.table.depth[column] += 1
        for column in range(filled, row.filled):
            row.table.depth[column] -= 1
        row.filled = filled

    def _made(
        self,
        doc: Outline,
        text: str,
        needed: MutableSequence[float],
        array: Node,
        found: dict[int, dict[int, int]],
    ) -> Table:
        table = Table(array)
        rows = [Row(table) for _ in array.items]
        self._rows.update({id(item): row for item, row in zip(array.items, rows, strict=True)})
        worth = {
            path: fmean([needed[unit] for unit in units.values()]) for path, units in found.items()
        }
        naming = _naming(doc, text, found, len(rows))
        if naming in worth:
            worth[naming] = max(worth.values()) + _NAMING
        later = [_LATER * log2(1 + place / _FIRST) for place in range(len(rows))]
        for path in sorted(found, key=lambda path: (-worth[path], path)):
            units = list(found[path].values())
            if len({_value(doc, text, unit) for unit in units}) == 1:
                if len(units) == len(rows):
                    table.same[_name(doc, path, array)] = doc.nodes[units[0]]
                    self.implied.update(units[1:])
                continue
            table.gaps |= len(units) < len(rows)
            for place, (item, row) in enumerate(zip(array.items, rows, strict=True)):
                unit = found[path].get(place, ABSENT)
                row.units.append(unit)
                if unit != ABSENT:
                    self._cells[unit] = Cell(table, item, len(table.columns))
                    if needed[unit] < worth[path] + _STANDS_OUT:
                        needed[unit] = worth[path] - _TIE * len(table.columns) - later[place]
            table.columns.append(_name(doc, path, array))
            table.depth.append(0)
        return table


def _naming(doc: Outline, text: str, found: Mapping[int, Mapping[int, int]], rows: int) -> int:
    """The path of the column that tells the rows apart, -1 where none does."""
    best, rank = -1, len(IDENTITIES)
    for path, units in found.items():
        last = split_identifier(doc.keys[path].strip('"'))[-1:]
        if len(units) < rows or not last or last[0] not in IDENTITIES[:rank]:
            continue
        if len({_value(doc, text, unit) for unit in units.values()}) > 0.9 * rows:
            best, rank = path, IDENTITIES.index(last[0])
    return best


def _value(doc: Outline, text: str, unit: int) -> str:
    return text[doc.starts[unit] : doc.ends[unit]]


def _arrays(doc: Outline) -> Iterator[Node]:
    """Arrays that hold objects and nothing else, outer ones first."""
    for box in doc.boxes:
        if box.kind != ARRAY or len(box.items) < MIN_ROWS:
            continue
        if all(item.kind == OBJECT and item.items for item in box.items):
            yield box


def _columns(doc: Outline, array: Node) -> dict[int, dict[int, int]]:
    """Key path → place of the item → unit, of whole values that most items have, once each."""
    found: dict[int, dict[int, int]] = {}
    unfit: set[int] = set()
    places = {id(item): place for place, item in enumerate(array.items)}
    first, after = bisect_left(doc.starts, array.start), bisect_left(doc.starts, array.end)
    parent, place = None, -1
    for unit in range(first, after):
        node = doc.nodes[unit]
        if node.parent is not parent:
            parent = node.parent
            place = places.get(id(_record(node, array)), -1)
        column = found.get(node.path)
        if column is None:
            column = found[node.path] = {}
        if place < 0 or place in column or doc.ends[unit] != node.end:
            unfit.add(node.path)
        column[place] = unit
    return {
        path: units
        for path, units in found.items()
        if len(units) >= _LIKE * len(array.items) and path not in unfit and _name(doc, path, array)
    }


def _record(node: Node, array: Node) -> Node | None:
    """The item of `array` around a value; None where an array of several stands between."""
    box = node.parent
    while box is not None and box.parent is not array:
        if box.kind == ARRAY and len(box.items) > 1:
            return None
        box = box.parent
    return box


def _name(doc: Outline, path: int, array: Node) -> str:
    """The dotted key path of a column, "" where it would not be clear."""
    keys: list[str] = []
    top = array.items[0].path
    while path != top:
        key = doc.keys[path]
        keys.append("0" if key == "[]" else key[1:-1])
        path = doc.parents[path]
    clear = all(key and "." not in key for key in keys)
    return ".".join(reversed(keys)) if clear else ""
