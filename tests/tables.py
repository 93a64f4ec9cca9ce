"""Reads fitted JSON: expands tables to the arrays that they represent."""

from typing import Any

NONE = "∅"


def expand(value: Any) -> Any:
    """`value` with its tables expanded to arrays of objects, without marks."""
    if isinstance(value, dict):
        return {key: expand(inner) for key, inner in value.items() if key != "…"}
    if not isinstance(value, list):
        return value
    head = value[0] if value and isinstance(value[0], dict) else {}
    if head.get("…") != "table":
        return [expand(item) for item in value if not _is_mark(item)]
    return [_record(row, head) for row in value[1:] if not _is_mark(row)]


def _is_mark(item: Any) -> bool:
    reply = list(item) if isinstance(item, dict) else [item]
    return len(reply) == 1 and isinstance(reply[0], str) and reply[0].startswith("…")


def _record(row: Any, head: dict[str, Any]) -> dict[str, Any]:
    cells, rest = (row, {}) if isinstance(row, list) else ([], row)
    if len(cells) and isinstance(cells[-1], dict) and cells[-1]:
        cells, rest = cells[:-1], cells[-1]
    built: dict[str, Any] = {}
    answer = dict(zip(head["columns"], cells, strict=False))
    for path, cell in {**head.get("same", {}), **answer}.items():
        if cell != NONE or NONE not in head:  # without a legend, NONE is an ordinary value
            built = _merged(built, _nested(path.split("."), cell))
    return _merged(built, expand(rest))


def _nested(path: list[str], cell: Any) -> Any:
    for part in reversed(path):
        cell = [cell] if part == "0" else {part: cell}
    return cell


def _merged(one: Any, other: Any) -> Any:
    """Merge two values; where they differ, `other` wins."""
    if isinstance(one, dict) and isinstance(other, dict):
        both = {key: _merged(one[key], other[key]) for key in one if key in other}
        return {**one, **other, **both}
    if isinstance(one, list) and isinstance(other, list):
        return [_merged(a, b) for a, b in zip(one, other, strict=False)] or one or other
    return other
