"""Split documentation, and the prompts, questions and tool calls that search it, into terms.

A compound counts both as its parts and as a whole, so that `--root-path`, `root_path` and "root
path" match each other. Words are stemmed as in all other memories.

Prior knowledge about words comes from two data files next to this module. Each line of
`background.txt` has a stem and its burstiness: how often the stem occurs on average in the 400-word
passages that contain it. The figures come from the English documentation of tldr, PowerShell, Helm,
React, Moby and Prometheus, and from Moby's commit messages. They cover the stems that occur in at
least 20 passages of at least three of these collections. The file contains none of the text.

`synonyms.txt` was written by hand. Each line has a group of words that developers use
interchangeably, with the head of the group first.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files

from msgspec import Struct

from upwell.ground.text.words import cjk_terms, fold
from upwell.memory.lookups import stemmer
from upwell.memory.ranking.terms import EVERYDAY_WORDS, sound

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


COMPOUND = re.compile(
    r"(?:(?<![\w-])--?(?=[^\W\d_]))?[^\W_](?:\w|[-.](?=[^\W_])|['’](?=[^\W\d_]{1,2}\b))*"
)
"""Matches word characters and the characters that join them: `--no-cache`, `os.path`, `don't`."""
_PART = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
FUNCTION_WORDS = frozenset(
    """
    a about after all also am an and any are aren't as at be because been before being both but by
    can can't cannot could couldn't did didn't do does doesn't doing don't down e.g each eg either
    else etc even ever every few for from further get gets getting got had hadn't has hasn't have
    haven't having he her here hers him his how however i i'd i'll i'm i've i.e ie if in into is
    isn't it it's its itself just let like ll may me might more most much must my myself no nor
    not now of off often on once one only onto or other our ours out over own per quite rather re
    really s same she should shouldn't since so some something still such t than that that's the
    their theirs them then there there's these they they're this those though through thus to too
    under until up upon us ve very via vs was wasn't we we'd we're we've were weren't what what's
    whatever when where whether which while who whom whose why will with within without won't
    would wouldn't yet you you'd you'll you're you've your yours
    """.split()
)
"""English words that reveal nothing about a subject. `STOP_WORDS` in `ground/text/words.py` is not
used here, because it has words from several languages, and some of them, such as `os` and `con`,
are terms in documentation."""
MAX_WORD_CHARS = 64
"""Longer parts of compounds, such as hashes, do not count as words."""
MAX_CACHED = 200_000

_known: dict[str, tuple[str, ...]] = {}


def terms(text: str) -> list[str]:
    compounds = COMPOUND.findall(sound(text))
    learn(compounds)
    try:
        return [term for compound in compounds for term in _known[compound]]
    except KeyError:  # another thread just emptied the cache
        return [term for compound in compounds for term in terms_of(compound)]


def terms_of(compound: str) -> tuple[str, ...]:
    """Return the terms of one compound: its parts, the joined parts, and the flag.

    `--root-path` gives `root path rootpath --root-path`.
    """
    cached = _known.get(compound)
    if cached is None:
        learn((compound,))
        cached = _known.get(compound, ())
    return cached


def learn(compounds: Iterable[str]) -> None:
    fresh = {compound for compound in compounds if compound not in _known}
    if not fresh:
        return
    if len(_known) > MAX_CACHED:
        _known.clear()
    parts_of = {compound: _parts(compound) for compound in fresh}
    parts = sorted({part for parts in parts_of.values() for part in parts})
    stems = dict(zip(parts, stemmer().stems(parts), strict=True))
    for compound, split in parts_of.items():
        _known[compound] = _joined(compound, split, stems)


def _parts(compound: str) -> list[str]:
    bare = compound.lstrip("-").replace("’", "'")
    if "'" in bare:
        if fold(bare) in FUNCTION_WORDS:
            return []
        bare = bare.partition("'")[0]
    parts: list[str] = []
    for run in _PART.findall(bare):
        if _CJK.search(run):
            parts += cjk_terms(run)
        else:
            parts += [fold(part) for part in _CAMEL.split(run)]
    return parts


def _joined(compound: str, parts: list[str], stems: dict[str, str]) -> tuple[str, ...]:
    joined = [
        stems[part]
        for part in parts
        if part not in FUNCTION_WORDS
        and len(part) <= MAX_WORD_CHARS
        and (len(part) > 1 or _CJK.match(part))
    ]
    if len(parts) > 1 and len(compound) <= MAX_WORD_CHARS and not _CJK.search(compound):
        joined.append("".join(parts))
    if compound[0] == "-" and parts:
        joined.append(fold(compound))
    return tuple(joined)


PART_WEIGHT = 0.5
"""The weight of a part of a compound. The joined form has a weight of 1."""
FIRST_LINE_WEIGHT = 1.6
"""The weight of the first line of a multi-line text. In a pasted issue, that line is the title."""
FOLDER_WEIGHT, ROOT_FOLDER_WEIGHT = 0.5, 0.3
MAX_QUERY_CHARS = 4_000
MAX_FOLDERS = 12
PATH_BREAKS = str.maketrans("/_-.", "    ")
STRUCTURE = frozenset(
    "src lib libs crate crates packag package packages pkg internal cmd test tests spec index mod "
    "main init utils util py rs go ts js tsx toml json yaml yml md lock core common base txt cfg "
    "crat util".split()
)
"""Parts of paths that occur in many repositories."""


class SectionQuestion(Struct, frozen=True):
    """A question, broken down into terms. `order` lists all terms in the order of the text.
    `compounds` contains the joined forms, such as `rootpath`. A section without a joined form may
    still answer the question."""

    weights: Mapping[str, float]
    order: tuple[str, ...]
    compounds: frozenset[str]


def of_text(text: str) -> SectionQuestion:
    lines = sound(text[:MAX_QUERY_CHARS]).split("\n")
    weights: dict[str, float] = {}
    order: list[str] = []
    compounds: set[str] = set()
    for number, line in enumerate(lines):
        share = FIRST_LINE_WEIGHT if number == 0 and len(lines) > 1 else 1.0
        for compound in COMPOUND.findall(line):
            parts = terms_of(compound)
            wholes = _wholes(parts)
            if len(parts) > 1:
                compounds |= {term for term in wholes if term[0] != "-"}
            for term in parts:
                weight = share if term in wholes else share * PART_WEIGHT
                weights[term] = max(weight, weights.get(term, 0.0))
                order.append(term)
    return SectionQuestion(weights, tuple(order), frozenset(compounds))


def _wholes(parts: tuple[str, ...]) -> frozenset[str]:
    if len(parts) < 2:
        return frozenset(parts)
    last = 2 if parts[-1][0] == "-" else 1
    return frozenset(parts[-last:])


def of_paths(paths: Iterable[str]) -> SectionQuestion:
    """Turn file paths into a question. File names have a weight of 1, and folders weigh less."""
    weights: dict[str, float] = {}
    compounds: set[str] = set()
    for path in paths:
        *folders, name = [part for part in sound(path).split("/") if part] or [""]
        for depth, folder in enumerate(folders[-MAX_FOLDERS:]):
            for term in terms(folder.translate(PATH_BREAKS)):
                if term not in STRUCTURE:
                    weight = FOLDER_WEIGHT if depth else ROOT_FOLDER_WEIGHT
                    weights[term] = max(weights.get(term, 0.0), weight)
        name_terms = [t for t in terms(re.sub(r"\.\w{1,5}$", "", name)) if t not in STRUCTURE]
        weights |= dict.fromkeys(name_terms, 1.0)
        compounds.update(name_terms[-1:] if len(name_terms) > 1 else ())
    return SectionQuestion(weights, tuple(weights), frozenset(compounds))
