"""Find places where a text can be cut without breaking a grapheme, word or sentence."""

import unicodedata

_ZWJ = "\u200d"
_LOOK_BACK = 64
_BOUNDARIES = ("\n\n", "\n", ". ", "。", "; ", ", ", " ")
"""Where to cut, best first: after a paragraph, line, sentence, clause or word."""


def safe_cut(text: str, limit: int) -> int:
    """Return the greatest index ≤ `limit` that is between two graphemes and not inside CRLF.

    The search goes back at most 64 characters. A longer run of combining marks is cut at `limit`.
    """
    if limit <= 0:
        return 0
    if limit >= len(text):
        return len(text)
    index = limit
    while index > max(0, limit - _LOOK_BACK) and _glued(text, index):
        index -= 1
    return index if index > 0 and not _glued(text, index) else limit


def _glued(text: str, index: int) -> bool:
    before, after = text[index - 1], text[index]
    if before == "\r" and after == "\n":
        return True
    if before.isascii() and after.isascii():
        return False
    if after == _ZWJ or before == _ZWJ or unicodedata.combining(after):
        return True
    if unicodedata.category(after) in ("Mn", "Me", "Mc") or 0x1F3FB <= ord(after) <= 0x1F3FF:
        return True
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    return _is_flag(after) and _is_flag(before) and _flags_before(text, index) % 2 == 1


def _is_flag(char: str) -> bool:
    return 0x1F1E6 <= ord(char) <= 0x1F1FF


def _flags_before(text: str, index: int) -> int:
    count = 0
    while index - count > 0 and count < _LOOK_BACK and _is_flag(text[index - count - 1]):
        count += 1
    return count


def boundary(text: str, start: int, end: int) -> int:
    """Return a natural end for the piece of `text` that begins at `start`.

    If `text` does not extend past `end`, the result is the end of `text`. Otherwise it is usually
    in the second half of `start:end`: the end of a paragraph if possible, or else of a line, a
    sentence, a clause, a word or a grapheme.
    """
    if end >= len(text):
        return len(text)
    least = start + (end - start) // 2
    for mark in _BOUNDARIES:
        index = text.rfind(mark, least, end)
        if index >= 0 and start < index + len(mark) <= end:
            return index + len(mark)
    cut = safe_cut(text, end)
    return cut if cut > start else end


def clip(text: str, max_chars: int) -> str:
    """Return `text`, truncated to `max_chars` including a final `…` if it is longer."""
    if len(text) <= max_chars:
        return text
    if max_chars <= 1:
        return "…"[:max_chars]
    return text[: safe_cut(text, boundary(text, 0, max_chars - 1))].rstrip() + "…"
