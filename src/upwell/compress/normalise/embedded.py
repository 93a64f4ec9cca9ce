"""Rewrite an array of objects that fills a whole line: give each object a line of its own.

    Links: [{"title":"Cranes","url":"https://example.org/c"},{"title":"Quays","url":"https://…"}]
    →
    Links:
    - Cranes <https://example.org/c>
    - Quays <https://example.org/q>

Web search tools return such arrays. Each line of the list can be selected or left out by itself.
"""

import json
import re

_ARRAY = re.compile(r"^([\w ]{0,40}:[ \t]?)?(\[\{.*\}\])[ \t\r]*$", re.M)
_LEAST_CHARS, _MOST_CHARS = 200, 200_000
LINK = re.compile(r"- .* <https?://[^\s>]+>\s*\Z")
"""Matches a line with a link, as `as_lists()` writes it."""


def as_lists(text: str) -> str:
    """Write arrays of objects in `text` as lists, if all their values are one-line strings."""
    return _ARRAY.sub(_list, text) if "[{" in text else text


def _list(match: re.Match[str]) -> str:
    array = match[2]
    if not _LEAST_CHARS <= len(array) <= _MOST_CHARS:
        return match[0]
    try:
        items = json.loads(array)
    except (ValueError, RecursionError):
        return match[0]
    rows = [_row(item) for item in items]
    if not all(rows):
        return match[0]
    head = f"{match[1].rstrip()}\n" if match[1] else ""
    return head + "\n".join(rows)


def _row(item: object) -> str:
    if not isinstance(item, dict) or not all(isinstance(value, str) for value in item.values()):
        return ""
    if "\n" in "".join(item.values()):
        return ""
    if set(item) == {"title", "url"}:
        return f"- {item['title']} <{item['url']}>"
    return "- " + " · ".join(f"{name}: {value}" for name, value in item.items())
