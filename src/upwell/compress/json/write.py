"""Write the selected part of a JSON document as valid JSON, with omission marks."""

import json
from operator import attrgetter

from msgspec import Struct

from upwell.compress.json.rows import ABSENT, NONE, SIGN, JsonTable, Tables
from upwell.compress.json.tree import OBJECT, JsonNode, Outline
from upwell.ground.types.compression import Omission

_START = attrgetter("start")
MAX_NAMED, MAX_NAMES_CHARS = 8, 100
"""The mark of the root names the keys that were left out if they are no more than this."""


class Style(Struct, frozen=True):
    """The format of the result.

    `colon`: `": "` or `":"`, as in the source. `lines`: one record per line (JSON Lines). `note`:
    text for the mark of the root, such as the key of the original.
    """

    colon: str = ": "
    lines: bool = False
    note: str = ""


def is_brief(node: JsonNode) -> bool:
    """Return whether the mark of this container only counts missing children, as in `+5 keys`.

    The root and arrays outside other arrays have full marks. An object inside an array has no mark.
    Instead, the mark of the outermost array says how many of its items were shortened.
    """
    return node.nested or (node.kind == OBJECT and node.parent is not None)


def _names_of(node: JsonNode, selected: list[JsonNode]) -> str:
    """Return the names of the keys that are not selected, or "" if they are many or long."""
    if node.kind != OBJECT or node.beyond:
        return ""
    shown = {id(child) for child in selected}
    names = [child.key[1:-1] for child in node.items if id(child) not in shown]
    text = ", ".join(names)
    return text if len(names) <= MAX_NAMED and len(text) <= MAX_NAMES_CHARS else ""


def characters(inside: str) -> int:
    """Count the characters that a part of a JSON string stands for. `\\u00e9` is one."""
    return len(json.loads(f'"{inside}"', strict=False)) if "\\" in inside else len(inside)


class Writer:
    """Writes the selected part of a document, with marks such as `"…": "7 of 12 keys left out"`.

    After `write()`, `omitted` contains the totals of all marks: keys, items, items that were
    shortened, and characters within strings.
    """

    def __init__(self, doc: Outline, text: str, style: Style, tables: Tables) -> None:
        self._doc = doc
        self._text = text
        self._style = style
        self._tables = tables
        self._shown: set[int] = set()
        self._has_signs = SIGN in text or "\\u2026" in text
        self._sums: dict[str, tuple[int, int]] = {}

    def write(self) -> str:
        """Return the document as valid JSON."""
        parts: list[str] = []
        stack: list[JsonNode | str] = [self._doc.root]
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                parts.append(item)
            elif not item.items:
                parts.append(self._name(item) + self._scalar(item))
            else:
                stack.extend(reversed(self._container(item)))
        return "".join(parts)

    @property
    def omitted(self) -> tuple[Omission, ...]:
        return tuple(
            Omission(what=what, count=count, total=total)
            for what, (count, total) in self._sums.items()
        )

    def _count(self, what: str, count: int, total: int) -> None:
        counts, totals = self._sums.get(what, (0, 0))
        self._sums[what] = counts + count, totals + total

    def _name(self, node: JsonNode) -> str:
        return node.key + self._style.colon if node.key else ""

    def _container(self, node: JsonNode) -> list[JsonNode | str]:
        bare = self._style.lines and node.parent is None
        selected = self._selected_children(node)
        between = "\n" if bare else ", "
        parts: list[JsonNode | str] = [self._name(node)]
        if not bare:
            parts.append("{" if node.kind == OBJECT else "[")
        table = self._tables.of(node)
        if table is not None and table.is_worth_it:
            parts.extend((self._head(table), ", "))
            self._mark_shown(selected)
            for child in selected:
                parts.extend((*self._row(child), between))
        else:
            for child in selected:
                parts.extend((child, between))
        mark = self._mark(node, selected)
        if mark:
            parts.append(mark)
        elif selected:
            parts.pop()
        if not bare:
            parts.append("}" if node.kind == OBJECT else "]")
        return parts

    def _selected_children(self, node: JsonNode) -> list[JsonNode]:
        selected = node.selected or []
        if self._shown:
            selected = [child for child in selected if id(child) not in self._shown]
        return sorted(selected, key=_START) if len(selected) > 1 else selected

    def _head(self, table: JsonTable) -> str:
        colon = self._style.colon
        parts = [f'"{SIGN}"{colon}"table"']
        same = [
            f'"{name}"{colon}{node.lexeme(self._text)}'
            for name, node in self._tables.shared(table).items()
        ]
        if same:
            parts.append(f'"same"{colon}{{{", ".join(same)}}}')
        names = ", ".join(f'"{name}"' for name in table.columns[: table.width])
        parts.append(f'"columns"{colon}[{names}]')
        if table.gaps:
            parts.append(f'"{NONE}"{colon}"no such key"')
        return "{" + ", ".join(parts) + "}"

    def _mark_shown(self, selected: list[JsonNode]) -> None:
        """Record the values that are not written under their names, because a row or the head
        contains them."""
        for record in selected:
            for node in self._tables.repeated(record):
                self._note_shown(node, record)
            for unit in self._tables.row(record):
                if unit != ABSENT:
                    self._note_shown(self._doc.nodes[unit], record)

    def _note_shown(self, node: JsonNode, record: JsonNode) -> None:
        while node is not record and node.parent is not None:
            self._shown.add(id(node))
            node = node.parent
            if any(id(child) not in self._shown for child in node.selected or []):
                return

    def _row(self, node: JsonNode) -> list[JsonNode | str]:
        """Write an item of a table as a row, if it has cells. The rest of the item is last in the
        row."""
        units = self._tables.row(node)
        if not units:
            return [node]
        cells = ", ".join(
            self._doc.nodes[unit].lexeme(self._text) if unit != ABSENT else f'"{NONE}"'
            for unit in units
        )
        return ["[", cells, ", ", node, "]"] if self._selected_children(node) else [f"[{cells}]"]

    def _mark(self, node: JsonNode, selected: list[JsonNode]) -> str:
        if node.nested and node.kind == OBJECT:
            return ""
        total = len(node.items) + node.beyond
        missing = total - len(selected)
        brief = node.nested or node.kind == OBJECT
        is_table = (table := self._tables.of(node)) is not None and table.is_worth_it
        is_counted = not brief or is_table
        below = [self._missing_below(child) for child in selected] if is_counted else []
        shortened = sum(count > 0 for count in below)
        note = self._style.note if node.parent is None else ""
        if not missing and not shortened and not note:
            return ""
        noun = "keys" if node.kind == OBJECT else "items"
        if missing:
            self._count(noun, missing, total)
        if shortened:
            self._count("items shortened", shortened, total)
        if is_brief(node):
            parts = [f"+{missing:,} {noun}"] if missing else []
            parts += [f"{shortened:,} of {total:,} {noun} shortened"] if shortened else []
            return self._as_mark(node, ", ".join(parts))
        text = f"{missing:,} of {total:,} {noun} left out" if missing else "shortened"
        if missing and (names := _names_of(node, selected)):
            text += f": {names}"
        if shortened:
            left_out = f", {missing:,} left out" if missing else ""
            text = f"{shortened:,} of {total:,} {noun} shortened{left_out}"
        return self._as_mark(node, text + note)

    def _as_mark(self, node: JsonNode, text: str) -> str:
        name = SIGN
        if self._has_signs and node.kind == OBJECT:
            source_keys = {child.key[1:-1].replace("\\u2026", SIGN) for child in node.items}
            while name in source_keys:
                name += SIGN
        if node.kind == OBJECT:
            return f'"{name}"{self._style.colon}"{text}"'
        if node.items[0].kind == OBJECT:
            return f'{{"{name}"{self._style.colon}"{text}"}}'
        return f'"{name} {text}"'

    def _missing_below(self, item: JsonNode) -> int:
        missing = item.size
        shown_in_row = self._tables.shown_in_row
        stack = [item]
        while stack:
            node = stack.pop()
            missing -= shown_in_row(node)
            for child in node.selected or ():
                if child.items:
                    stack.append(child)
                else:
                    missing -= 1
        return missing if item.items else 0

    def _scalar(self, node: JsonNode) -> str:
        if not node.units or self._doc.starts[node.units[0]] == node.start:
            return node.lexeme(self._text)
        doc = self._doc
        units = sorted(node.units)
        parts = []
        offset = node.start + 1
        for unit in units:
            if doc.starts[unit] > offset:
                parts.append(SIGN)
            parts.append(self._text[doc.starts[unit] : doc.ends[unit]])
            offset = doc.ends[unit]
        total = characters(self._text[node.start + 1 : node.end - 1])
        missing = total - sum(
            characters(self._text[doc.starts[unit] : doc.ends[unit]]) for unit in units
        )
        if missing:
            parts.append(f"{SIGN}(+{missing:,})")
            self._count("characters", missing, total)
        return f'"{"".join(parts)}"'
