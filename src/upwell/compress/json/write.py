"""Writing what was bought of a JSON document as valid JSON."""

from dataclasses import dataclass
from operator import attrgetter

from upwell.compress.json.outline import Outline
from upwell.compress.json.rows import ABSENT, NONE, SIGN, Table, Tables
from upwell.compress.json.tree import OBJECT, SCALAR, Node
from upwell.ground.types import Omission

_START = attrgetter("start")


@dataclass(frozen=True, slots=True)
class Style:
    """How the source writes: `": "` or `":"`; `lines` for one record a line (JSON Lines)."""

    colon: str = ": "
    lines: bool = False
    note: str = ""


def is_brief(node: Node) -> bool:
    """Is the mark of this container only a number? In full are those of the root and of arrays
    that stand in no other array; an object in an array is spoken for by the array's mark."""
    return node.nested or (node.kind == OBJECT and node.parent is not None)


def _plain(key: str) -> str:
    """A key without quotes; one that spells our sign as an escape counts as the sign."""
    return key[1:-1].replace("\\u2026", SIGN)


class Writer:
    """Writes the bought part of a document as valid JSON, with a mark wherever something is
    missing: `"…": "7 of 12 keys left out"`."""

    def __init__(self, doc: Outline, text: str, style: Style, tables: Tables) -> None:
        self._doc = doc
        self._text = text
        self._style = style
        self._tables = tables
        self._told: set[int] = set()
        self._has_signs = SIGN in text or "\\u2026" in text
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
        kept = self._left(node)
        between = "\n" if bare else ", "
        found: list[Node | str] = [self._name(node)]
        if not bare:
            found.append("{" if node.kind == OBJECT else "[")
        table = self._tables.of(node)
        if table is not None and table.is_worth_it:
            found.extend((self._head(table), ", "))
            self._tell(table, kept)
        if table is not None and table.is_worth_it:
            for child in kept:
                found.extend((*self._row(child), between))
        else:
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

    def _left(self, node: Node) -> list[Node]:
        """What is kept in a container and not told in a row, in its order."""
        kept = node.kept or []
        if self._told:
            kept = [child for child in kept if id(child) not in self._told]
        return sorted(kept, key=_START) if len(kept) > 1 else kept

    def _head(self, table: Table) -> str:
        """What stands in front of the rows: the values all have, the names of the columns."""
        colon = self._style.colon
        parts = [f'"{SIGN}"{colon}"table"']
        same = [
            f'"{name}"{colon}{self._leaf(node)}'
            for name, node in self._tables.shared(table).items()
        ]
        if same:
            parts.append(f'"same"{colon}{{{", ".join(same)}}}')
        names = ", ".join(f'"{name}"' for name in table.columns[: table.width])
        parts.append(f'"columns"{colon}[{names}]')
        if table.gaps:
            parts.append(f'"{NONE}"{colon}"no such key"')
        return "{" + ", ".join(parts) + "}"

    def _tell(self, table: Table, kept: list[Node]) -> None:
        """Note what need not be written by its name, because it stands in a row or is the same
        in all."""
        for node in self._tables.shared(table).values():
            self._note_told(node, table.array.items[0])
        for record in kept:
            for unit in self._tables.row(record):
                if unit != ABSENT:
                    self._note_told(self._doc.nodes[unit], record)

    def _note_told(self, node: Node, record: Node) -> None:
        while node is not record and node.parent is not None:
            self._told.add(id(node))
            node = node.parent
            if any(id(child) not in self._told for child in node.kept or []):
                return

    def _row(self, node: Node) -> list[Node | str]:
        """An item of a table as a row, if some of its values stand in one."""
        units = self._tables.row(node)
        if not units:
            return [node]
        cells = ", ".join(
            self._leaf(self._doc.nodes[unit]) if unit != ABSENT else f'"{NONE}"' for unit in units
        )
        return ["[", cells, ", ", node, "]"] if self._left(node) else [f"[{cells}]"]

    def _leaf(self, node: Node) -> str:
        if node.kind != SCALAR:
            return "{}" if node.kind == OBJECT else "[]"
        return node.lexeme(self._text)

    def _mark(self, node: Node, kept: list[Node]) -> str:
        if node.nested and node.kind == OBJECT:
            return ""
        whole = len(node.items) + node.beyond
        missing = whole - len(kept)
        brief = node.nested or node.kind == OBJECT
        below = [] if brief else [self._missing_below(child) for child in kept]
        inner, cut = sum(below), sum(count > 0 for count in below)
        note = self._style.note if node.parent is None else ""
        if not missing and not inner and not note:
            return ""
        what = "keys" if node.kind == OBJECT else "items"
        if missing:
            where = node.key.strip('"')
            self.omitted.append(Omission(what=what, count=missing, total=whole, where=where))
        if is_brief(node):
            return self._dress(node, f"+{missing:,} {what}")
        said = f"{missing:,} of {whole:,} {what} left out" if missing else "shortened"
        if inner:
            self.omitted.append(
                Omission(what="values", count=inner, total=node.size, where=node.key.strip('"'))
            )
            gone = f", {missing:,} left out" if missing else ""
            said = f"{cut:,} of {whole:,} {what} shortened{gone}"
        return self._dress(node, said + note)

    def _dress(self, node: Node, said: str) -> str:
        """The mark as it may stand in `node`: an entry, an object among objects, a string."""
        name = SIGN
        if self._has_signs and node.kind == OBJECT:
            taken = {_plain(child.key) for child in node.items}
            while name in taken:
                name += SIGN
        if node.kind == OBJECT:
            return f'"{name}"{self._style.colon}"{said}"'
        if node.items[0].kind == OBJECT:
            return f'{{"{name}"{self._style.colon}"{said}"}}'
        return f'"{name} {said}"'

    def _missing_below(self, item: Node) -> int:
        """Scalars left out inside an item that was kept."""
        missing = item.size
        told_beside = self._tables.told_beside
        stack = [item]
        while stack:
            node = stack.pop()
            missing -= told_beside(node)
            for child in node.kept or ():
                if child.items:
                    stack.append(child)
                else:
                    missing -= 1
        return missing if item.items else 0

    def _scalar(self, node: Node) -> str:
        if not node.units or self._doc.starts[node.units[0]] == node.start:
            return self._leaf(node)
        return '"' + self._pieces(node, sorted(node.units)) + '"'

    def _pieces(self, node: Node, units: list[int]) -> str:
        doc = self._doc
        parts = []
        at = node.start + 1
        for unit in units:
            if doc.starts[unit] > at:
                parts.append(SIGN)
            parts.append(self._text[doc.starts[unit] : doc.ends[unit]])
            at = doc.ends[unit]
        missing = (
            node.end - 1 - node.start - 1 - sum(doc.ends[unit] - doc.starts[unit] for unit in units)
        )
        if missing:
            parts.append(f"{SIGN}(+{missing:,})")
            total = node.end - node.start - 2
            self.omitted.append(
                Omission(what="characters", count=missing, total=total, where=node.key.strip('"'))
            )
        return "".join(parts)
