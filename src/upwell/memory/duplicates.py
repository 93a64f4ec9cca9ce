"""The rules by which all stores recognise duplicate memories."""

from collections.abc import Mapping, Sequence

from upwell.memory.ranking.terms import sound
from upwell.memory.stems import counted

NEARLY_THE_SAME = 0.8
"""Two memories that share at least this fraction of their stems (Jaccard) are near duplicates."""
MAX_CHECKED = 200
"""The largest batch that is checked for near duplicates. A larger batch is an import, for which
only exact duplicates are reported."""
MAX_REPORTED = 5
MAX_HOLDING = 2_000
"""If even the rarest word of a text occurs in more memories than this, the text is not checked for
near duplicates."""
COMPARED = 8


def rarest_stems(stems: Sequence[str], holding: Mapping[str, int]) -> list[str]:
    """Return the stems by which to look up near duplicates of a text, rarest first. `stems` are all
    stems of the text. Two texts that share 80 % of their words also share at least one of the
    rarest fifth, so only that fifth is looked up (prefix filtering, Chaudhuri et al. 2006)."""
    known = sorted((stem for stem in stems if holding.get(stem)), key=lambda stem: holding[stem])
    if not known or holding[known[0]] > MAX_HOLDING:
        return []
    return known[: len(stems) // 5 + 1]


def are_alike(text: str, other: str) -> bool:
    """Return whether two texts are near duplicates."""
    left, right = set(counted(sound(text))), set(counted(sound(other)))
    return bool(left | right) and len(left & right) / len(left | right) >= NEARLY_THE_SAME
