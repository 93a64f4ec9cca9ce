"""The frame around surfaced text, and how what stands inside it is kept from leaving it.

Imports next to nothing: a hook that cannot wait for the daemon uses it too.
"""

import re
import unicodedata

TAG = "upwell-memories"
REMINDER = "Notes from earlier work, for reference; upwell__memory_get gives the full text of one."
_OWN_TAG = re.compile(r"<(?=\s*/?\s*[a-z]+[-_][a-z])", re.IGNORECASE)
"""What could pass for the end of our frame or the start of another: tags with two-part names."""
_SPACE = re.compile(r"\s+")
_KEPT_CONTROLS = "\n\t"


def harmless(text: str) -> str:
    """`text` without what could act on a terminal or a reader: control, bidi, zero-width and
    private characters become spaces or visible escapes; our own frame's tag is escaped."""
    if text.isascii() and text.isprintable():
        return _OWN_TAG.sub("\\\\u003c", text)
    shown = "".join(
        char
        if char in _KEPT_CONTROLS
        or (unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co") and char not in "＜＞﹤﹥")
        else _visible(char)
        for char in text
    )
    return _OWN_TAG.sub("\\\\u003c", shown)


def harmless_line(text: str) -> str:
    """`text` as one harmless line."""
    return harmless(_SPACE.sub(" ", text)).strip()


def _visible(char: str) -> str:
    return " " if char in "\r\x0b\x0c\x85" else f"\\u{ord(char):04x}"
