"""Fences: what stands in them is code, also in a text that is none."""

import re
from collections.abc import Callable

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.M)


def outside(text: str, change: Callable[[str], str]) -> str:
    """`text` with what stands outside of fences changed. A fence that does not end goes on to the
    end of the text."""
    parts: list[str] = []
    at = 0
    while (opening := _FENCE.search(text, at)) is not None:
        end = _end(text, opening)
        parts += [change(text[at : opening.start()]), text[opening.start() : end]]
        at = end
    parts.append(change(text[at:]))
    return "".join(parts)


def _end(text: str, opening: re.Match[str]) -> int:
    """Where the fence that is opened there is closed: a line of the same sign, at least as long."""
    mark = opening[1]
    for closing in _FENCE.finditer(text, opening.end()):
        if closing[1][0] == mark[0] and len(closing[1]) >= len(mark):
            return closing.end()
    return len(text)
