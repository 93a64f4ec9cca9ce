"""The raw signals of a hit, which `memory/ranking/calibrate.py` turns into a probability.

The signals from words include BM25 (Robertson and Zaragoza 2009), how many of the query's words the
memory contains (weighted by rarity), and how far its BM25 is above that of other candidates. BM25
counts `Candidate.extra` at half weight. For a turn of a conversation, the neighbouring turns also
count. The signals from files and symbols describe the memory's best join of each kind. A join
counts less the more memories share it.

A memory is stored under up to four join keys for each of its files: the whole path (`f:`), the
path's last two parts (`s:`), the file's name (`n:`) and its stem (`t:`). It is also stored under
the whole name and the last part of each symbol (`y:`).

"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from upwell.ground.text.anchors import (
    COMMON_STEMS,
    DATA_EXTENSIONS,
    PROJECT_FILES,
    file_stem,
    path_parts,
    relative_to,
    symbol_keys,
)
from upwell.ground.types.memory import Memory
from upwell.memory.ranking.calibrate import NullScores
from upwell.memory.ranking.terms import Corpus, QueryReading, sound, word_list

FULL_PATH, PATH_TAIL, FILE_NAME, PATTERN, STEM, SYMBOL = 1.0, 0.8, 0.5, 0.5, 0.35, 1.0
"""The strength of a join, by what matched: the whole path, the path's last two parts, the file's
name, a file name pattern, the stem (which a test shares with the code that it tests), or a symbol.
"""
EVERYWHERE = 0.3
"""The strength of a join is multiplied by this for files that most projects have, such as a README,
a manifest, a licence or a dot file."""
_MIN_PATTERN_CHARS = 3
MAX_PARTS = 64
"""`exact_keys()` uses only this many parts from the end of a path."""


class Join(Struct, frozen=True):
    """An exact match of a file or symbol. `strength` depends on the part that matched. `holding` is
    the number of memories that share the match. `stems` are the stemmed words of the file's name; a
    symbol has none."""

    strength: float
    symbol: bool
    holding: int = 0
    stems: tuple[str, ...] = ()


class JoinKey(Struct, frozen=True):
    """A key to look up: the strength of a match, and the name of the file or symbol."""

    strength: float
    name: str
    symbol: bool


def anchor_keys(memory: Memory) -> tuple[str, ...]:
    """Return the keys under which a memory is stored."""
    keys: dict[str, None] = {}
    for path in memory.paths:
        for key in path_keys(relative_to(path, memory.project)):
            keys.setdefault(key)
    for key in symbol_keys(memory.symbols):
        keys.setdefault(f"y:{key}")
    return tuple(map(_storable, keys))


def exact_keys(file: str) -> list[str]:
    """Return keys for exactly this file. A memory may refer to the file by its whole path or by any
    tail of the path, so every memory about the file has at least one of these keys."""
    parts = path_parts(file.lower())[-MAX_PARTS:]
    return [_storable(f"f:{'/'.join(parts[start:])}") for start in range(len(parts))]


def _storable(key: str) -> str:
    # Keys are stored one per line.
    return sound(key.replace("\n", " "))


def path_keys(path: str) -> tuple[str, ...]:
    """Return the keys of one file, strictest first."""
    parts = path_parts(path.lower())
    if not parts:
        return ()
    keys = [f"f:{'/'.join(parts)}"]
    if len(parts) > 1:
        keys.append(f"s:{'/'.join(parts[-2:])}")
    keys += [f"n:{parts[-1]}", f"t:{file_stem(path)}"]
    return tuple(keys)


def join_keys(
    paths: Iterable[str], symbols: Iterable[str], project: str | None
) -> dict[str, JoinKey]:
    """Return the keys to look up for a query's files and symbols. A key that occurs several times
    gets its greatest strength."""
    keys: dict[str, JoinKey] = {}

    def add(key: str, join: JoinKey) -> None:
        if key not in keys or keys[key].strength < join.strength:
            keys[key] = join

    for path in map(sound, paths):
        name = file_stem(path)
        for key, strength in path_forms(path, project):
            add(key, JoinKey(strength, name, symbol=False))
    for key in symbol_keys(map(sound, symbols)):
        add(f"y:{key}", JoinKey(SYMBOL, key, symbol=True))
    return keys


def path_forms(path: str, project: str | None) -> list[tuple[str, float]]:
    """Return the keys under which memories about `path` may be stored, each with its strength.

    A relative path, or one inside the project, is complete. For any other path, the repository's
    root is unknown, so each tail of two or more parts may be the complete path. In a pattern
    (`**/*name*`), only the literal part of the file's name counts. Except in a pattern, a data file
    is not looked up by its stem, because `nothere.txt` is unrelated to `nothere.py`.
    """
    if any(sign in path for sign in "*?"):
        return _pattern_forms(path)
    known = relative_to(path, project).lower()
    parts = path_parts(known)
    if not parts:
        return []
    stem = file_stem(path)
    rooted = path.startswith(("/", "~"))
    is_inside = not rooted or known != "/".join(path_parts(path.lower()))
    forms = [(f"f:{known}", FULL_PATH)]
    if not is_inside:
        forms += [(f"f:{'/'.join(parts[i:])}", FULL_PATH) for i in range(1, len(parts) - 1)]
    if len(parts) > 1:
        forms += [(f"s:{'/'.join(parts[-2:])}", PATH_TAIL)]
    if stem not in COMMON_STEMS:
        forms += [(f"f:{parts[-1]}", FILE_NAME), (f"n:{parts[-1]}", FILE_NAME)]
        if parts[-1].rpartition(".")[2] not in DATA_EXTENSIONS:
            forms.append((f"t:{stem}", STEM))
    if stem in PROJECT_FILES or parts[-1].startswith("."):
        return [(key, strength * EVERYWHERE) for key, strength in forms]
    return forms


def _pattern_forms(path: str) -> list[tuple[str, float]]:
    last = path_parts(path.lower())[-1:]
    name = last[0].replace("*", "").replace("?", "") if last else ""
    if (
        len(name) < _MIN_PATTERN_CHARS
        or name.startswith(".")
        or file_stem(name) in COMMON_STEMS | PROJECT_FILES
    ):
        return []
    exact = [(f"n:{name}", FILE_NAME)] if "*" not in last[0] else []
    return [*exact, (f"t:{file_stem(name)}", PATTERN)]


K1 = 1.2
B = 0.75
EXTRA_WEIGHT = 0.5
MAX_COUNTED_CHARS = 20_000
"""Only the words in this many leading characters of a memory are counted."""

SIGNALS = frozenset(
    """
    bm25 bm25_per_term margin idf_coverage coverage_mass in_vocabulary informative_words
    matched_words telling_words name_rarity memories rarest chance chance_spread turn window
    speaker path_join path_rarity path_named path_focus symbol_join symbol_rarity
    """.split()
)
"""The keys that `Hit.signals` has for every hit of `scoring.rank()` if the query has words. If the
query was compared by meaning, there are also `cosine`, `meaning`, `meaning_margin` and
`meaning_near`. A hit with a trigger has `scoring.TRIGGER`, and a memory that a newer one replaces
has `scoring.SUPERSEDED`."""
NO_JOIN: Mapping[str, float] = dict.fromkeys(
    ("path_join", "path_rarity", "path_named", "path_focus", "symbol_join", "symbol_rarity"), 0.0
)
"""The signals of a candidate without a matching file or symbol."""


class Candidate(Struct, frozen=True):
    """A memory to be scored. `body` and `extra` are the counts of the query's stems in the memory's
    text and in its extra words. `words` is the length of the text in words.

    `n` is the memory's number in the store. The turns before and after a turn of a conversation
    have the numbers `n - 1` and `n + 1`. `keys` are the join keys. `speaker` is "" unless the
    memory is a turn of a conversation. `load` builds the whole memory, which only hits need.
    """

    n: int
    id: str
    namespace: str
    body: Mapping[str, int]
    words: int
    extra: Mapping[str, int]
    keys: tuple[str, ...]
    speaker: str
    load: Callable[[], Memory]

    def frequency(self, stem: str) -> float:
        return self.body.get(stem, 0) + EXTRA_WEIGHT * self.extra.get(stem, 0)


class Likeness(Struct, frozen=True):
    """The similarity of memories to a question. `cosines` maps memory numbers to cosines (in
    PostgreSQL, nearest first). `mean` and `spread` describe the store's cosines, and `background`
    is the mean cosine of the memories that follow the very best ones."""

    cosines: Mapping[int, float]
    mean: float
    spread: float
    background: float

    def deviations(self, n: int) -> float | None:
        """Return how far a memory is above the store's mean, in standard deviations, or None if the
        memory was not compared."""
        cosine = self.cosines.get(n)
        return None if cosine is None else (cosine - self.mean) / self.spread

    def margin(self, n: int) -> float:
        """Return how far a memory is above `background`, in standard deviations."""
        return (self.cosines.get(n, self.background) - self.background) / self.spread


def frequencies(reading: QueryReading, candidate: Candidate) -> dict[str, float]:
    """Return the weighted counts of the query's stems in a candidate."""
    body, extra = candidate.body, candidate.extra
    counts: dict[str, float] = {stem: body[stem] for stem in reading.idf.keys() & body.keys()}
    for stem in reading.idf.keys() & extra.keys() if extra else ():
        counts[stem] = counts.get(stem, 0.0) + EXTRA_WEIGHT * extra[stem]
    return counts


def matches(candidate: Candidate, reading: QueryReading) -> bool:
    """Return whether any word of the query occurs in the candidate."""
    stems = reading.idf.keys()
    return not (stems.isdisjoint(candidate.body) and stems.isdisjoint(candidate.extra))


class QueryPart(Struct, frozen=True):
    """A candidate, and how often each stem of one query occurs in it (weighted)."""

    candidate: Candidate
    counts: Mapping[str, float]


def bm25(reading: QueryReading, corpus: Corpus, parts: Sequence[QueryPart]) -> float:
    """Return the BM25 of the query over these parts, treated as one text."""
    words = sum([part.candidate.words for part in parts])
    norm = K1 * (1.0 - B + B * words / (corpus.mean_words * len(parts)))
    summed = dict(parts[0].counts)
    for part in parts[1:]:
        for stem, times in part.counts.items():
            summed[stem] = summed.get(stem, 0.0) + times
    return sum(
        [
            reading.idf[stem] * times * (K1 + 1.0) / (times + norm)
            for stem, times in sorted(summed.items())
        ]
    )


def best_bm25(reading: QueryReading, corpus: Corpus, candidates: Iterable[Candidate]) -> float:
    """Return the best BM25 of these candidates, or 0 if there are none."""
    parts = (QueryPart(each, frequencies(reading, each)) for each in candidates)
    return max((bm25(reading, corpus, [part]) for part in parts), default=0.0)


def query_signals(
    reading: QueryReading, corpus: Corpus, null_scores: NullScores
) -> dict[str, float]:
    """Return the signals that all candidates of one query share."""
    chance, spread = null_scores.at(reading.in_vocabulary * len(reading.stems))
    return {
        "in_vocabulary": reading.in_vocabulary,
        "informative_words": float(len(reading.stems)),
        "chance": chance,
        "chance_spread": spread,
        "memories": float(corpus.memories),
    }


def word_signals(
    reading: QueryReading, corpus: Corpus, part: QueryPart, near: Sequence[QueryPart]
) -> dict[str, float]:
    """Return a candidate's signals from the words of one query. `near` contains the neighbouring
    turns."""
    candidate, stems = part.candidate, sorted(part.counts)
    rarities = [reading.idf[stem] for stem in stems]
    own = bm25(reading, corpus, [part])
    covered = sum(rarities)
    rarest = max(rarities, default=0.0)
    name_rarity = max([reading.idf[stem] for stem in stems if stem in reading.names], default=0.0)
    return {
        "bm25": own,
        "bm25_per_term": own / len(reading.stems) if reading.stems else 0.0,
        "idf_coverage": covered / reading.mass if reading.mass else 0.0,
        "coverage_mass": covered,
        "matched_words": float(len(stems)),
        "telling_words": float(sum([stem in reading.telling for stem in stems])),
        "name_rarity": name_rarity / corpus.rarest,
        "rarest": rarest / corpus.rarest,
        "turn": float(bool(candidate.speaker)),
        "window": bm25(reading, corpus, [part, *near]) if near else own,
        "speaker": float(
            bool(candidate.speaker)
            and any(word in reading.words for word in _name_words(candidate.speaker))
        ),
    }


def join_signals(
    joins: Mapping[str, Join], corpus: Corpus, candidate: Candidate
) -> Mapping[str, float]:
    """Return the signals of a candidate's two strongest joins: one by file, one by symbol."""
    if not joins:
        return NO_JOIN
    signals = dict(NO_JOIN)
    for key in candidate.keys:
        join = joins.get(key)
        if join is None:
            continue
        kind = "symbol" if join.symbol else "path"
        rarity = damped(join.holding, corpus.memories)
        if join.strength * rarity > signals[f"{kind}_join"] * signals[f"{kind}_rarity"]:
            signals[f"{kind}_join"], signals[f"{kind}_rarity"] = join.strength, rarity
            if not join.symbol:
                named = sum(1 for stem in join.stems if candidate.frequency(stem))
                signals["path_named"] = named / len(join.stems) if join.stems else 0.0
                files = sum(1 for key in candidate.keys if key.startswith("f:"))
                signals["path_focus"] = 1.0 / math.sqrt(max(1, files))
    return signals


def meaning_signals(likeness: Likeness, n: int, turn: bool) -> dict[str, float]:
    """Return a candidate's signals from its meaning: its cosine with the question, and how far that
    is above the store's mean and above `Likeness.background`. For a turn of a conversation,
    `meaning_near` is how far the better of its neighbours is above the mean."""
    near = [value for other in (n - 1, n + 1) if turn and (value := likeness.deviations(other))]
    own = likeness.deviations(n)
    return {
        "cosine": likeness.cosines.get(n, 0.0),
        "meaning": own or 0.0,
        "meaning_margin": likeness.margin(n) if own is not None else 0.0,
        "meaning_near": max(near, default=0.0),
    }


def damped(holding: int, memories: int) -> float:
    """Return a factor that is 1 if only one memory has the file or symbol, and that falls towards 0
    as more memories share it."""
    return math.log1p(memories / max(1, holding)) / math.log1p(max(1, memories))


@lru_cache(maxsize=512)
def _name_words(speaker: str) -> tuple[str, ...]:
    # Cached because a conversation has few speakers and many turns.
    return tuple(word_list(speaker))
