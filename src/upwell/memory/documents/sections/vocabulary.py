"""Prior knowledge about words, from two data files next to this module.

Each line of `background.txt` has a stem and its burstiness: how often it occurs, on average, in
those passages of 400 words that contain it. The counts were made over the English documentation of
tldr, PowerShell, Helm, React, Moby and Prometheus and over Moby's commit messages, for stems in at
least 20 passages of at least three of these collections. The file contains none of their text, only
these figures.

`synonyms.txt` was written by hand: groups of words that developers use for one another, with
the head of each group first. It names no project.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from upwell.ground.text.words import fold
from upwell.memory.ranking.terms import EVERYDAY_WORDS
from upwell.memory.stems import stemmer

SYNONYM_WEIGHT, SIBLING_WEIGHT = 0.3, 0.15
"""The weight of a synonym: between the head of a group and one of its other words, and between two
of these other words."""
UNKNOWN_BURST = 1.8
"""The burstiness assumed for a stem that `background.txt` lacks: most such stems are names or terms
of a subject."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Prior knowledge about stems.

    `burst`: the average number of occurrences in a passage that contains the stem. Everyday
    words are spread evenly (`leave` 1.2), and words of a subject come in bursts (`proxy` 2.6).
    `everyday`: words of conversation and of any coding work. `synonyms`: stem → other stems and how
    much each counts.
    """

    burst: Mapping[str, float]
    everyday: frozenset[str]
    synonyms: Mapping[str, Mapping[str, float]]


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    """Return the shipped vocabulary, which is read once."""
    rows = (line.split() for line in _lines("background.txt"))
    return Vocabulary(
        burst={stem: float(value) for stem, value in rows},
        everyday=frozenset(stemmer().stems(EVERYDAY_WORDS)),
        synonyms=_synonyms(),
    )


def _synonyms() -> dict[str, dict[str, float]]:
    others: dict[str, dict[str, float]] = defaultdict(dict)
    for line in _lines("synonyms.txt"):
        group = stemmer().stems([fold(word) for word in line.split()])
        for stem in group:
            for other in group:
                weight = SYNONYM_WEIGHT if group[0] in (stem, other) else SIBLING_WEIGHT
                if stem != other:
                    others[stem][other] = max(weight, others[stem].get(other, 0.0))
    return dict(others)


def _lines(name: str) -> list[str]:
    text = (files(__package__) / name).read_text("utf-8")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
