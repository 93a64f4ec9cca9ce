"""Finds private keys in PEM format, including those whose beginning or end was cut off."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

_MARK = rb"(?i)-----(BEGIN|END)[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?-----"
_GAP = rb"(?:[\s>|\"',]|\\+[nrt]?)"
_HEADER = rb"(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset)[:=][^\n\\]{0,200}"
_BEGINNING = (
    rb"(?:" + _GAP + rb"|" + _HEADER + rb")*[A-Za-z0-9+/=-]{16,}"
    rb"(?:" + _GAP + rb"+[A-Za-z0-9+/=-]{16,})*(?:" + _GAP + rb"+[A-Za-z0-9+/=]{1,15})?"
)
_ENDING = rb"(?:[A-Za-z0-9+/=]{16,}" + _GAP + rb"+)+(?:[A-Za-z0-9+/=]{1,15}" + _GAP + rb"+)?$"
MIN_BODY = 64
"""The least number of bytes between the two lines. With fewer, the text only mentions a key."""
MAX_TAIL = 16_384


def private_keys(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each private key."""
    if b"private key" not in data.lower():
        return
    opened: tuple[int, int] | None = None
    for match in _regex(_MARK).finditer(data):
        start, end = match.span()
        if match.group(1).upper() == b"BEGIN":
            if opened:
                yield from _open(data, *opened)
            opened = start, end
        elif opened:
            if start - opened[1] >= MIN_BODY:
                yield opened[0], end
            opened = None
        else:
            yield from _tail(data, start, end)
    if opened:
        yield from _open(data, *opened)


def _open(data: bytes, start: int, body: int) -> Iterator[tuple[int, int]]:
    """Yield a key whose end was cut off."""
    match = _regex(rb"\A" + _BEGINNING).search(data[body:])
    if match:
        yield start, body + match.end()


def _tail(data: bytes, mark: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield a key whose beginning was cut off."""
    start = max(0, mark - MAX_TAIL)
    match = _regex(_ENDING).search(data[start:mark])
    if match and mark - start - match.start() >= MIN_BODY:
        yield start + match.start(), end


@lru_cache(maxsize=4)
def _regex(pattern: bytes) -> Any:
    import re2

    return re2.compile(pattern)
