"""Makes invisible characters and terminal control characters visible.

These are control and format characters, characters that reverse the direction of text, private-use
characters, and letters without a glyph. They can hide text from a person but not from a model.
"""

import re
import unicodedata

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
