"""Characters that nobody sees and that carry nothing outside of code: byte order marks, zero-width
spaces, bells, and a terminal's changes of alphabet. What joins characters, orders them or separates
records stays."""

import re

from upwell.compress.clean.fences import outside

_BREAKING = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
"""Thai, Lao, Burmese and Khmer: there a zero-width space ends a word."""
_UNSEEN = re.compile(
    rf"[\ufeff\u2060\x00\x07\x0e\x0f\x7f]|\x1b[()][AB012]|\x1b[=>78]"
    rf"|(?<![{_BREAKING}])\u200b(?![{_BREAKING}])"
)
_SIGNS = re.compile("[\ufeff\u2060\u200b\x00\x07\x0e\x0f\x7f\x1b]")


def seen(text: str) -> str:
    """`text` without them, but for what stands in a fence."""
    if not _SIGNS.search(text):
        return text
    return outside(text, lambda part: _UNSEEN.sub("", part))
