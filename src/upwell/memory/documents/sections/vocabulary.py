"""Prior knowledge about words, from two data files next to this module.

Each line of `background.txt` has a stem and its burstiness: how often the stem occurs on average in
the 400-word passages that contain it. The figures come from the English documentation of tldr,
PowerShell, Helm, React, Moby and Prometheus, and from Moby's commit messages. They cover the stems
that occur in at least 20 passages of at least three of these collections. The file contains none of
the text.

`synonyms.txt` was written by hand. Each line has a group of words that developers use
interchangeably, with the head of the group first.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files

from msgspec import Struct

from upwell.ground.text.words import fold
from upwell.memory.ranking.terms import EVERYDAY_WORDS
from upwell.memory.stems import stemmer

SYNONYM_WEIGHT, SIBLING_WEIGHT = 0.3, 0.15
"""The weights of synonyms: between the head of a group and another of its words, and between two of
the other words."""
UNKNOWN_BURST = 1.8
"""The burstiness of a stem that is not in `background.txt`. Most such stems are names or technical
terms."""


class Vocabulary(Struct, frozen=True):
    """Prior knowledge about stems.

    - `burst`: the average number of occurrences in a passage that contains the stem. Everyday words
      are spread evenly (`know` 1.2), and technical words come in bursts (`proxy` 2.6).
    - `everyday`: words that are common in conversation and in all coding work.
    - `synonyms`: the synonyms of each stem, with their weights.
    """

    burst: Mapping[str, float]
    everyday: frozenset[str]
    synonyms: Mapping[str, Mapping[str, float]]


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    """Return the shipped vocabulary. The files are read once."""
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
