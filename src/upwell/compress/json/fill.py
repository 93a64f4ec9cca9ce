"""Spending a budget on the units of a JSON document."""

import math
from collections.abc import Sequence
from functools import lru_cache

from upwell.compress.fitted import Room
from upwell.compress.json.outline import Outline
from upwell.compress.json.rows import GAP, HEAD, MIN_ROWS, Cell, Tables
from upwell.compress.json.tree import OBJECT, SCALAR, Node
from upwell.compress.json.write import Style, is_brief
from upwell.ground.text.tokens import weigh

_SHORT = 32
_MARK_CHARS, _MARK_TOKENS = 56, 18.0
_CUT_CHARS, _CUT_TOKENS = 14, 7.0
_SMALL_MARK_CHARS, _SMALL_MARK_TOKENS = 20, 8.0


class Basket:
    """What has been bought so far, and what it costs as text."""

    def __init__(self, doc: Outline, text: str, style: Style, room: Room, tables: Tables) -> None:
        self._doc = doc
        self._tables = tables
        self._text = text
        self._style = style
        self._room = room
        self._counting = room.tokens < math.inf
        self.chars = 0.0
        self.tokens = 0.0
        self._open(doc.root)
        self._pay(style.note)

    def settle(self, text: str) -> None:
        """What was bought so far is written, as `text`: go on from what it really costs."""
        self.chars = self.tokens = 0.0
        self._pay(text)

    def buy(self, order: Sequence[int]) -> list[int]:
        """Take units in this order until one does not fit. Returns those taken."""
        taken = []
        for unit in order:
            chars, tokens = self.chars, self.tokens
            opened = self._add(unit)
            if self._is_over():
                self._undo(unit, opened)
                self.chars, self.tokens = chars, tokens
                break
            taken.append(unit)
        return taken

    def give_back(self, unit: int) -> None:
        """Undo the purchase of `unit`, the last one made."""
        node = self._doc.nodes[unit]
        node.units.remove(unit)
        node = self._tables.put_back(unit) or node
        while self._is_empty(node) and node.parent is not None:
            assert node.parent.kept is not None
            node.parent.kept.remove(node)
            node = node.parent

    def _is_empty(self, node: Node) -> bool:
        return not node.units and not node.kept and not self._tables.row(node)

    def _add(self, unit: int) -> list[Node]:
        """Buy a unit, and whatever around it is not open yet. Returns what was opened."""
        doc, node = self._doc, self._doc.nodes[unit]
        piece = self._text[doc.starts[unit] : doc.ends[unit]]
        cell = self._tables.take(unit, doc.nodes)
        if cell is not None:
            self._head(cell)
            opened = self._open_all(cell.record)
            self._pay(", " + GAP * self._tables.gaps_before(cell))
        else:
            opened = [] if node.units else self._open_all(node)
        if node.units:
            node.units.append(unit)
        else:
            node.units = [unit]
        self._pay(piece)
        if node.end - node.start > len(piece) and len(node.units) == 1:
            self.chars += _CUT_CHARS
            self.tokens += _CUT_TOKENS
        return opened

    def _head(self, cell: Cell) -> None:
        """Pay for the name of a column in front of its table."""
        table = cell.table
        if table.depth[cell.column] == MIN_ROWS:
            self._pay(f'"{table.columns[cell.column]}", ')
            if cell.column == 0:
                self._pay(HEAD)

    def _open_all(self, node: Node) -> list[Node]:
        """Open `node` and everything around it, as far as it is not open."""
        opened = []
        above = node
        while above.parent is not None and (above.kind == SCALAR or above.kept is None):
            opened.append(above)
            above = above.parent
        if above.kept is None:
            opened.append(above)
        for box in reversed(opened):
            self._open(box)
            if self._is_over():
                break
        return opened

    def _is_over(self) -> bool:
        return self.chars > self._room.chars or self.tokens > self._room.tokens

    def _undo(self, unit: int, opened: list[Node]) -> None:
        self._doc.nodes[unit].units.pop()
        self._tables.put_back(unit)
        for box in opened:
            shelf = box.parent.kept if box.parent is not None else None
            if shelf and shelf[-1] is box:
                shelf.pop()
            if box.kind != SCALAR:
                box.kept = None

    def _open(self, node: Node) -> None:
        """Begin a container or a value: its name, its brackets, and room for its mark."""
        if node.parent is not None:
            if node.parent.kept is None:
                node.parent.kept = []
            node.parent.kept.append(node)
        if node.key:
            self._pay(node.key + self._style.colon)
        self._pay(", ")
        if not node.items:
            return
        node.kept = []
        self._pay("{}" if node.kind == OBJECT else "[]")
        if node.parent is not None and self._tables.of(node.parent):
            self._pay("[], ")
        if node.nested and node.kind == OBJECT:
            return
        brief = is_brief(node)
        self.chars += _SMALL_MARK_CHARS if brief else _MARK_CHARS
        self.tokens += _SMALL_MARK_TOKENS if brief else _MARK_TOKENS

    def _pay(self, text: str) -> None:
        self.chars += len(text)
        if self._counting:
            self.tokens += _weigh_short(text) if len(text) < _SHORT else weigh(text)


@lru_cache(maxsize=4096)
def _weigh_short(text: str) -> float:
    """Names and brackets come again and again."""
    return weigh(text)
