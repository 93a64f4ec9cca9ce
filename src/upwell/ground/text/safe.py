"""Characters that must not pass as they are, and places where a text can be cut without breaking a
grapheme, word or sentence.

Invisible characters and terminal control characters are made visible: control and format
characters, characters that reverse the direction of text, private-use characters, and letters
without a glyph. They can hide text from a person but not from a model.

Lone surrogates, which are halves of characters, are replaced. They come from escapes in JSON and
from file names that are not UTF-8. Encoders reject them, so a lone surrogate in the name of a
session or folder would make every entry in the same batch fail.
"""

import json
import re
import unicodedata
from typing import Any

import orjson

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufffc"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Unicode's default-ignorable characters that are not in `_HIDDEN_CATEGORIES`, and two that look
blank."""
_PRESENTATION = "\ufe0e\ufe0f"
"""Characters that select the form of an emoji."""
_SPACES = "\r\x0b\x0c\x85\u2028\u2029"
_KEPT = "\n\t"


def is_invisible(char: str) -> bool:
    """Return whether a reader cannot see the character."""
    if char in _KEPT:
        return False
    return unicodedata.category(char) in _HIDDEN_CATEGORIES or bool(_IGNORABLE.match(char))


def visible(text: str) -> str:
    """Return `text` with invisible characters replaced by spaces or escapes such as `\\u200b`.
    Characters that select the form of an emoji are dropped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(char) if is_invisible(char) else char for char in text)


def _shown(char: str) -> str:
    if char in _PRESENTATION:
        return ""
    return " " if char in _SPACES else f"\\u{ord(char):04x}"


def visible_json(text: str) -> str:
    """Return the JSON document `text` with invisible characters replaced by JSON escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(char) if is_invisible(char) else char for char in text)


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    pairs = (units[at : at + 2].hex() for at in range(0, len(units), 2))
    return "".join(f"\\u{pair}" for pair in pairs)


def dumped(value: Any) -> bytes:
    """Return `value` as JSON, with lone surrogates replaced by question marks."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=False).encode(errors="replace")


def loaded(document: bytes) -> Any:
    """Return the value of a JSON document written by another program, with lone surrogates replaced
    by question marks.

    Raises:
        ValueError, RecursionError: the document is not JSON, or is nested too deeply.
    """
    try:
        return orjson.loads(document)
    except orjson.JSONDecodeError:
        # A document without escapes has no surrogates, so it is invalid for another reason.
        if b"\\u" not in document:
            raise
    text = json.dumps(json.loads(document), ensure_ascii=False)
    return json.loads(text.encode(errors="replace"))


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
