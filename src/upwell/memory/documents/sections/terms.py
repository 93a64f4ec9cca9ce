"""Split documentation and questions into terms.

A compound counts both as its parts and as a whole, so that `--root-path`, `root_path` and "root
path" match each other. Words are stemmed as in all other memories.
"""

import re
from collections.abc import Iterable

from upwell.ground.text.words import cjk_terms, fold
from upwell.memory.ranking.terms import sound
from upwell.memory.stems import stemmer

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
    """Return the stemmed terms of `text` in order, without function words."""
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
    """Compute and cache the terms of these compounds, with one call of the stemmer."""
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
    """Return the folded words of a compound. Chinese, Japanese and Korean are split into pairs of
    characters."""
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
