"""Spending a budget on the units of a JSON document, and writing what was bought as valid JSON."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from upwell.compress.fitted import Room
from upwell.compress.json.outline import Outline
from upwell.compress.json.tree import OBJECT, SCALAR, Node
from upwell.ground.text.tokens import weigh
from upwell.ground.types import Omission

_ELLIPSIS = "…"
_SHORT = 32
_MARK_CHARS, _MARK_TOKENS = 44, 16.0
_CUT_CHARS, _CUT_TOKENS = 14, 7.0
_SMALL_MARK_CHARS, _SMALL_MARK_TOKENS = 20, 8.0


@dataclass(frozen=True, slots=True)
class Style:
    """How the source writes: `": "` or `":"`; `lines` for one record a line (JSON Lines)."""

    colon: str = ": "
    lines: bool = False
    note: str = ""


class Basket:
    """What has been bought so far, and what it costs as text."""

    def __init__(self, doc: Outline, text: str, style: Style, room: Room) -> None:
        self._doc = doc
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
        while not node.units and not node.kept and node.parent is not None:
            assert node.parent.kept is not None
            node.parent.kept.remove(node)
            node = node.parent

    def _add(self, unit: int) -> list[Node]:
        doc, node = self._doc, self._doc.nodes[unit]
        piece = self._text[doc.starts[unit] : doc.ends[unit]]
        opened = []
        if not node.units:
            above = node
            while above.parent is not None and (above is node or above.kept is None):
                opened.append(above)
                above = above.parent
            if above.kept is None:
                opened.append(above)
            for box in reversed(opened):
                self._open(box)
                if self._is_over():
                    break
        node.units.append(unit)
        self._pay(piece)
        if node.end - node.start > len(piece) and len(node.units) == 1:
            self.chars += _CUT_CHARS
            self.tokens += _CUT_TOKENS
        return opened

    def _is_over(self) -> bool:
        return self.chars > self._room.chars or self.tokens > self._room.tokens

    def _undo(self, unit: int, opened: list[Node]) -> None:
        self._doc.nodes[unit].units.pop()
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
        if node.nested and node.kind == OBJECT:
            return
        brief = _is_brief(node)
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


def _is_brief(node: Node) -> bool:
    """Is the mark of this container only a number? In full are those of the root and of arrays
    that stand in no other array; an object in an array is spoken for by the array's mark."""
    return node.nested or (node.kind == OBJECT and node.parent is not None)


def _plain(key: str) -> str:
    """A key without quotes; one that spells our sign as an escape counts as the sign."""
    return key[1:-1].replace("\\u2026", _ELLIPSIS)


class Writer:
    """Writes the bought part of a document as valid JSON, with a mark wherever something is
    missing: `"…": "7 of 12 keys left out"`."""

    def __init__(self, doc: Outline, text: str, style: Style) -> None:
        self._doc = doc
        self._text = text
        self._style = style
        self.omitted: list[Omission] = []

    def write(self) -> str:
        parts: list[str] = []
        stack: list[Node | str] = [self._doc.root]
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                parts.append(item)
            elif not item.items:
                parts.append(self._name(item) + self._scalar(item))
            else:
                stack.extend(reversed(self._container(item)))
        return "".join(parts)

    def _name(self, node: Node) -> str:
        return node.key + self._style.colon if node.key else ""

    def _container(self, node: Node) -> list[Node | str]:
        bare = self._style.lines and node.parent is None
        kept = sorted(node.kept or [], key=lambda child: child.start)
        between = "\n" if bare else ", "
        found: list[Node | str] = [self._name(node)]
        if not bare:
            found.append("{" if node.kind == OBJECT else "[")
        for child in kept:
            found.extend((child, between))
        mark = self._mark(node, kept)
        if mark:
            found.append(mark)
        elif kept:
            found.pop()
        if not bare:
            found.append("}" if node.kind == OBJECT else "]")
        return found

    def _mark(self, node: Node, kept: list[Node]) -> str:
        whole = len(node.items) + node.beyond
        missing = whole - len(kept)
        inner = 0 if node.nested or node.kind == OBJECT else self._missing_below(kept)
        note = self._style.note if node.parent is None else ""
        if not missing and not inner and not note:
            return ""
        what = "keys" if node.kind == OBJECT else "items"
        if missing:
            where = node.key.strip('"')
            self.omitted.append(Omission(what=what, count=missing, total=whole, where=where))
        if node.nested and node.kind == OBJECT:
            return ""
        if _is_brief(node):
            return self._dress(node, f"+{missing:,} {what}")
        said = f"{missing:,} of {whole:,} {what}" if missing else ""
        if inner:
            self.omitted.append(
                Omission(what="values", count=inner, total=node.size, where=node.key.strip('"'))
            )
            said = f"{said}, {inner:,} values" if said else f"{inner:,} values"
        return self._dress(node, (f"{said} left out" if said else "shortened") + note)

    def _dress(self, node: Node, said: str) -> str:
        """The mark as it may stand in `node`: an entry, an object among objects, a string."""
        name = _ELLIPSIS
        taken = {_plain(child.key) for child in node.items} if node.kind == OBJECT else set()
        while name in taken:
            name += _ELLIPSIS
        if node.kind == OBJECT:
            return f'"{name}"{self._style.colon}"{said}"'
        if node.items[0].kind == OBJECT:
            return f'{{"{name}"{self._style.colon}"{said}"}}'
        return f'"{name} {said}"'

    def _missing_below(self, kept: list[Node]) -> int:
        """Scalars left out inside those items that were kept."""
        missing = 0
        stack = list(kept)
        while stack:
            node = stack.pop()
            missing += node.size
            if not node.items:
                missing -= 1
            else:
                stack.extend(node.kept or [])
                missing -= sum(child.size for child in node.kept or [])
        return missing

    def _scalar(self, node: Node) -> str:
        if node.kind != SCALAR:
            return "{}" if node.kind == OBJECT else "[]"
        doc, units = self._doc, sorted(node.units)
        whole = doc.starts[units[0]] == node.start if units else True
        if whole:
            return node.lexeme(self._text)
        return '"' + self._pieces(node, units) + '"'

    def _pieces(self, node: Node, units: list[int]) -> str:
        doc = self._doc
        parts = []
        at = node.start + 1
        for unit in units:
            if doc.starts[unit] > at:
                parts.append(_ELLIPSIS)
            parts.append(self._text[doc.starts[unit] : doc.ends[unit]])
            at = doc.ends[unit]
        missing = (
            node.end - 1 - node.start - 1 - sum(doc.ends[unit] - doc.starts[unit] for unit in units)
        )
        if missing:
            parts.append(f"{_ELLIPSIS}(+{missing:,})")
            total = node.end - node.start - 2
            self.omitted.append(
                Omission(what="characters", count=missing, total=total, where=node.key.strip('"'))
            )
        return "".join(parts)
