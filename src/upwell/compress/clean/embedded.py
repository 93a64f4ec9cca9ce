"""Pictures and fonts that are written into a page as base64: what they are and how long is said."""

import re

from upwell.compress.clean.fences import outside
from upwell.ground.types import Omission

_DATA = re.compile(
    r"(data:[\w.+/-]*+(?:;(?!base64,)[\w=.+-]++)*+;base64,)([A-Za-z0-9+/=]{200,}+)", re.I
)


def without_data(text: str) -> tuple[str, tuple[Omission, ...]]:
    """`text` with `data:image/png;base64,[…9,120 chars]` for what is long, but for fences."""
    if ";base64," not in text:
        return text, ()
    sizes: list[int] = []

    def said(found: re.Match[str]) -> str:
        sizes.append(len(found[2]))
        return f"{found[1]}[…{len(found[2]):,} chars]"

    shorter = outside(text, lambda part: _DATA.sub(said, part))
    chars = sum(sizes)
    left_out = Omission(what="characters of embedded data", count=chars, total=chars)
    return shorter, (left_out,) if sizes else ()
