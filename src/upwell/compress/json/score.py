"""Score the values of a JSON document by their relevance to a question, and by their salience: how
much they matter when there is no question."""

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from upwell.compress.json.tree import ARRAY, OBJECT, JsonNode, Outline
from upwell.compress.relevance import Finder, RelevanceQuestion, lowered, name_stems, places, rarity
from upwell.ground.text.words import split_identifier

_TELLING = frozenset(
    """id name title login namespace status state type kind version message error reason code
    number count total path file email key value label description summary result conclusion
    date time created updated phase severity level method operation""".split()
)
"""Words in the keys whose values say most about a record."""
_DULL = frozenset(
    """url uri href link links self sha hash etag checksum integrity signature gravatar avatar
    curies node digest nonce html git ssh svn managed microsecond second minute hour""".split()
)
"""Words in the keys whose values say little: links, hashes, parts of a time."""
_WRITTEN = frozenset("body text content comment message reply answer".split())
"""Keys whose values a person wrote. These values are longer than others, and usually the most
important part of the record."""
_TROUBLE = "error fail denied fatal exception panic crash invalid timeout refused".split()
_TIME = re.compile(r'"?(?:\d{4}-\d\d-\d\d|\w{3}, \d\d? \w{3} \d{4}|1[5-9]\d{8}(?:\d{3})?\b)')
_NUMBER = re.compile(r'"?-?\d[\d,.]*+(?: ?[A-Za-z%]{1,3})?"?\Z')
_PLACE = re.compile(r'"(?:https?://|/|[\w.-]+/|[\w-]+\.[a-z]{2,})')
_TYPES = {"time": _TIME, "number": _NUMBER, "place": _PLACE}

_EMPTY = frozenset({"null", "true", "false", '""', "[]", "{}", "0"})
_EMPTY_CHARS = max(map(len, _EMPTY))
_COMMON = 64
"""A value loses salience each time the number of its occurrences doubles, up to this number."""
_LONGEST = 400
"""A value loses salience each time its length doubles, up to this many characters."""
_WRITTEN_WORTH = 4.0
_SENTENCE_CHARS = 40
"""A value shorter than this gains nothing from a key in `_WRITTEN`."""
_STEP_UP = 0.72
"""The credit for a term in the parent's key, relative to a term in the value's own key."""
_EXPECTED = 1.3
_NAMES = 3
_HOLLOW = 0.5
"""The factor for an empty value when only its key path or a nearby value matches."""
IDENTITIES = (
    "name", "id", "key", "title", "subject", "headline", "identifier", "number", "slug", "login",
    "path", "file", "sha", "oid", "email", "type",
)  # fmt: skip
"""Keys that identify a record, best first. A longer key that ends in one of these words, such as
`messageHeadline`, may also identify it."""
_CODES = frozenset({"sha", "oid", "email", "type"})
"""Keys that identify a record only if no other key at the same depth does."""
_FEW = 3
"""In an array of at most this many records, the position of a record identifies it, so most records
need no other identity. A `name` is still given. So is a file, because a line number or a message is
useless without its file."""
_NAME_KEY, _PLACES = '"name"', frozenset({"path", "file", "filename", "filepath"})
_LINES = frozenset({"line", "lineno", "row"})
"""Keys of line numbers. A record with a file and a line needs both beside its name."""
_NAMING_DEPTH = 1
"""A record may be named by a value of an object nested in it, at most this many levels deep."""


def salience(doc: Outline, text: str) -> list[float]:
    """Score how much each unit matters when there is no question.

    Short values, names, states and errors rank before links and hashes, and rare values rank before
    common values. The first value of each key path gains salience, because it shows the schema.
    """
    by_path = _path_salience(doc)
    values = [text[start:end] for start, end in zip(doc.starts, doc.ends, strict=True)]
    common = _doubling_costs(0.6, _COMMON, 1)
    costs = {value: common[min(times, _COMMON)] for value, times in Counter(values).items()}
    lengths = _doubling_costs(0.75, _LONGEST, 4)
    written = {path for path, key in enumerate(doc.keys) if key.strip('"').lower() in _WRITTEN}
    seen_paths: set[int] = set()
    scores = []
    for node, value, piece in zip(doc.nodes, values, doc.pieces, strict=True):
        path, size = node.path, len(value)
        score = by_path[path] - lengths[size if size < _LONGEST else _LONGEST] - costs[value]
        if path in written and (piece or size >= _SENTENCE_CHARS):
            score += _WRITTEN_WORTH
        if piece:
            score = score - 2.0 - 0.05 * min(piece, 40)
        else:
            if path not in seen_paths:
                seen_paths.add(path)
                score += 1.6
            if value in _EMPTY:
                score -= 1.5
        scores.append(score)
    lowercase = lowered(text)
    troubled: set[int] = set()
    for word in _TROUBLE:
        offset = lowercase.find(word)
        while offset >= 0:
            unit = bisect_right(doc.starts, offset) - 1
            if unit >= 0 and offset < doc.ends[unit]:
                troubled.add(unit)
            offset = lowercase.find(word, offset + len(word))
    for unit in troubled:
        scores[unit] += 1.5
    return scores


@lru_cache(maxsize=4)
def _doubling_costs(step: float, most: int, least: int) -> tuple[float, ...]:
    return tuple(step * math.log2(max(size, least) / least) for size in range(most + 1))


def _path_salience(doc: Outline) -> list[float]:
    saliences = []
    depths = [0] * len(doc.keys)
    for path, key in enumerate(doc.keys):
        parent = doc.parents[path]
        depths[path] = depths[parent] + (key != "[]") if parent >= 0 else 0
        saliences.append(_key_salience(key) - 0.3 * depths[path])
    return saliences


@lru_cache(maxsize=65_536)
def _key_salience(key: str) -> float:
    parts = split_identifier(key)
    score = 0.0 if _TELLING.isdisjoint(parts) else 0.8
    return score if _DULL.isdisjoint(parts) else score - 1.2


def relevance(
    doc: Outline, text: str, question: RelevanceQuestion
) -> tuple[dict[int, float], float]:
    """Score the units that answer `question`.

    Returns the score of each such unit, and the share of the question that the best unit covers,
    0..1. A term counts if it is in the key path or the value of the unit. It counts less if it is
    in another value of an enclosing container.
    """
    hits, holders = _value_hits(doc, text, question)
    credits, precision = _path_credits(doc, question)
    weights = _weights(doc, question, hits, credits)
    contexts = _contexts(doc, holders)
    expected = _expected_paths(doc, text, question)
    first_equal = _first_equal_paths(credits, precision, expected)
    sums = {
        path: sum([weights[term] * credit for term, credit in credits[path].items()])
        for path in set(first_equal)
    }

    def worth(path: int, context: dict[int, float], fit: float) -> float:
        score, path_credits = sums[path], credits[path]
        for term, credit in context.items():
            gain = credit - path_credits.get(term, 0.0)
            if gain > 0.0:
                score += weights[term] * gain
        return score * ((0.5 + 0.5 * fit) * (_EXPECTED if path in expected else 1.0))

    context: dict[int, float] = {}
    parent: JsonNode | None = None
    caches: dict[int, dict[int, float]] = {}
    cache = caches.setdefault(id(context), {})
    scores: dict[int, float] = {}
    for unit, node in enumerate(doc.nodes):
        if node.parent is not parent:
            parent = node.parent
            context = contexts[id(parent)]
            cache = caches.setdefault(id(context), {})
        path = first_equal[node.path]
        if unit in hits:
            own = {**context, **dict.fromkeys(hits[unit], 1.0)}
            scores[unit] = worth(path, own, max(precision[path], 0.6))
            continue
        score = cache.get(path)
        if score is None:
            score = cache[path] = worth(path, context, precision[path])
        if score > 0.0:
            start, end = doc.starts[unit], doc.ends[unit]
            empty = end - start <= _EMPTY_CHARS and text[start:end] in _EMPTY
            scores[unit] = score * _HOLLOW if empty else score
    best = max(scores.values(), default=0.0)
    total = sum(
        weight for weight, term in zip(weights, question.terms, strict=True) if term.weight >= 1.0
    )
    return scores, min(1.0, best / total) if total else 0.0


def _first_equal_paths(
    credits: list[dict[int, float]], precision: list[float], expected: set[int]
) -> list[int]:
    """Map each path to the first path with the same score, so that scores can be cached."""
    first: dict[tuple[int, float, bool], int] = {}
    return [
        first.setdefault((id(path_credits), precision[path], path in expected), path)
        for path, path_credits in enumerate(credits)
    ]


def _value_hits(
    doc: Outline, text: str, question: RelevanceQuestion
) -> tuple[dict[int, set[int]], dict[int, list[int]]]:
    """Map units, and containers (by `id`), to the numbers of the terms in them."""
    lowercase = lowered(text)
    hits: dict[int, set[int]] = {}
    holders: dict[int, list[int]] = {}
    starts, ends, nodes = doc.starts, doc.ends, doc.nodes
    for number, term in enumerate(question.terms):
        if len(term.text) < 3 and not term.exact and term.text.isascii():
            continue
        nodes_hit: dict[int, JsonNode] = {}
        for offset in places(term, lowercase, text):
            unit = bisect_right(starts, offset) - 1
            if unit >= 0 and offset < ends[unit]:
                nodes_hit[unit] = nodes[unit]
        boxes: set[int] = set()
        for unit, node in nodes_hit.items():
            hits.setdefault(unit, set()).add(number)
            box = node.parent
            while box is not None and id(box) not in boxes:
                boxes.add(id(box))
                holders.setdefault(id(box), []).append(number)
                box = box.parent
    return hits, holders


def _path_credits(
    doc: Outline, question: RelevanceQuestion
) -> tuple[list[dict[int, float]], list[float]]:
    """For each path, return the credit of each term, and how large a share of the words in the
    path's keys matches."""
    credits: list[dict[int, float]] = []
    precision: list[float] = []
    finder = Finder(question)
    memo: dict[str, tuple[dict[int, float], float]] = {}
    no_credits: dict[int, float] = {}
    steps: dict[tuple[int, str], tuple[dict[int, float], float]] = {}
    for path, key in enumerate(doc.keys):
        parent = doc.parents[path]
        inherited = credits[parent] if parent >= 0 else no_credits
        before = precision[parent] if parent >= 0 else 0.0
        if key in ("", "[]"):
            credits.append(inherited)
            precision.append(before)
            continue
        step = steps.get((id(inherited), key))
        if step is None:
            cached = memo.get(key)
            if cached is None:
                cached = memo[key] = finder.match(name_stems(key[1:-1]), key[1:-1].lower())
            matched, share = cached
            own = {term: credit * _STEP_UP for term, credit in inherited.items()}
            own = {**own, **matched} if own or matched else no_credits
            step = steps[id(inherited), key] = (own, share)
        own, share = step
        credits.append(own)
        precision.append(0.75 * share + 0.25 * before if parent > 0 else share)
    return credits, precision


def _weights(
    doc: Outline,
    question: RelevanceQuestion,
    hits: dict[int, set[int]],
    credits: list[dict[int, float]],
) -> list[float]:
    holding = [0] * len(question.terms)
    for terms in hits.values():
        for term in terms:
            holding[term] += 1
    below: dict[int, int] = {}
    for path_credits, values in zip(credits, doc.below, strict=True):
        below[id(path_credits)] = below.get(id(path_credits), 0) + values
    for path_credits in {id(path_credits): path_credits for path_credits in credits}.values():
        for term in path_credits:
            holding[term] += below[id(path_credits)]
    units = len(doc.nodes)
    return [
        term.weight * rarity(units, min(units, holding[number]))
        for number, term in enumerate(question.terms)
    ]


def _contexts(doc: Outline, holders: dict[int, list[int]]) -> dict[int, dict[int, float]]:
    """Map the `id()` of each container to the terms found in it or in an enclosing container, with
    the credit that each term gives to a value inside. Smaller containers give more credit.
    Containers with equal contexts share one dict."""
    contexts: dict[int, dict[int, float]] = {}
    no_credits: dict[int, float] = {}
    shared: dict[tuple[int, float, tuple[int, ...]], dict[int, float]] = {}
    for box in doc.boxes:
        context = contexts.get(id(box.parent), no_credits) if box.parent is not None else no_credits
        terms = holders.get(id(box))
        if terms:
            worth = 1.0 / (1.0 + 0.25 * math.log2(1.0 + box.size / 8))
            signature = (id(context), worth, tuple(terms))
            if signature not in shared:
                shared[signature] = {**context, **dict.fromkeys(terms, worth)}
            context = shared[signature]
        contexts[id(box)] = context
    return contexts


def _expected_paths(doc: Outline, text: str, question: RelevanceQuestion) -> set[int]:
    pattern = _TYPES.get(question.expects)
    if pattern is None:
        return set()
    first: dict[int, JsonNode] = {}
    for node in doc.nodes:
        first.setdefault(node.path, node)
    return {
        path for path, node in first.items() if pattern.match(text[node.start : node.start + 60])
    }


def with_identities(
    doc: Outline, ordered: Sequence[int], relevances: Mapping[int, float]
) -> list[int]:
    """Before each value, insert the values that identify the records containing it, such as an id
    or a title.

    Without them, a reader could not tell which record a value belongs to. A record in a small array
    is identified only if the value answers the question, or if its identity is a `name`, a path or
    a file. A value of a record with a file and a line number needs both.
    """
    names, places = _identities(doc), _places(doc)
    units: dict[int, None] = {}
    for unit in ordered:
        naming_units = [
            names[id(record)]
            for record in _records(doc.nodes[unit])
            if id(record) in names
            and (
                unit in relevances
                or (record.parent is not None and len(record.parent.items) > _FEW)
                or _names_always(doc.keys[doc.nodes[names[id(record)]].path])
            )
        ]
        units.update(dict.fromkeys(reversed(naming_units)))
        for record in _records(doc.nodes[unit]):
            units.update(dict.fromkeys(places.get(id(record), ())))
        units.setdefault(unit)
    return list(units)


def _names_always(key: str) -> bool:
    words = split_identifier(key[1:-1])
    return key == _NAME_KEY or (bool(words) and words[-1] in _PLACES)


def place_paths(doc: Outline) -> tuple[list[int], list[int]]:
    """Return the key paths whose values name files, as in `filename` or SARIF's
    `artifactLocation.uri`, and those whose values are line numbers, without the ends of ranges.
    Both are empty unless the document has both."""
    files: list[int] = []
    lines: list[int] = []
    words: list[list[str]] = []
    ends: list[bool] = []
    for path, key in enumerate(doc.keys):
        parent = doc.parents[path]
        parts = list(split_identifier(key[1:-1]))
        words.append(parts)
        ends.append("end" in parts or (parent >= 0 and ends[parent]))
        if not parts:
            continue
        above = words[parent] if parent >= 0 else []
        is_uri = parts[-1] == "uri" and above[-1:] == ["location"]
        if parts[-1] in _PLACES or parts[-2:] == ["file", "name"] or is_uri:
            files.append(path)
        elif not _LINES.isdisjoint(parts) and not ends[path]:
            lines.append(path)
    return (files, lines) if files and lines else ([], [])


def _places(doc: Outline) -> dict[int, tuple[int, int]]:
    """Map the `id()` of each record with a line number to the units of its file and its line."""
    file_paths, line_paths = map(frozenset, place_paths(doc))
    files: dict[int, int] = {}
    lines: dict[int, int] = {}
    for unit, node in enumerate(doc.nodes):
        if not doc.pieces[unit] and (node.path in file_paths or node.path in line_paths):
            units = files if node.path in file_paths else lines
            units.setdefault(id(_record(node)), unit)
    return {record: (unit, lines[record]) for record, unit in files.items() if record in lines}


def _record(node: JsonNode) -> JsonNode | None:
    """Return the nearest record around a value that is one of several in its array."""
    box = node.parent
    while box is not None and box.parent is not None:
        if box.kind == OBJECT and box.parent.kind == ARRAY and len(box.parent.items) > 1:
            return box
        box = box.parent
    return box


def _identities(doc: Outline) -> dict[int, int]:
    """Map the `id()` of each record to the unit that identifies it. The unit is a value of the
    record itself or of an object in it, such as `metadata`."""
    best: dict[int, tuple[int, int, int]] = {}
    ranks = {path: _naming_rank(key) for path, key in enumerate(doc.keys)}
    for unit, node in enumerate(doc.nodes):
        if ranks[node.path] < 0 or doc.pieces[unit]:
            continue
        owner, depth = node.parent, 0
        while owner is not None and depth <= _NAMING_DEPTH:
            is_record = owner.parent is None or owner.parent.kind == ARRAY
            rank = (depth, ranks[node.path], unit)
            if (is_record or depth == 0) and rank < best.get(id(owner), (depth + 1, 0, 0)):
                best[id(owner)] = rank
            if is_record:
                break
            owner, depth = owner.parent, depth + 1
    return {record: unit for record, (_, _, unit) in best.items()}


@lru_cache(maxsize=65_536)
def _naming_rank(key: str) -> int:
    """Return how well a key identifies a record (0 is best), or -1 if it does not. A longer key
    that ends in a word from `IDENTITIES`, such as `gravatar_id`, may identify something else, so it
    ranks below a key that is such a word alone. Keys in `_CODES` rank last.
    """
    words = split_identifier(key[1:-1])
    if not words or words[-1] not in IDENTITIES:
        return -1
    if words[-1] in _CODES:
        return 2 * len(IDENTITIES) if len(words) == 1 else -1
    return IDENTITIES.index(words[-1]) + (len(IDENTITIES) if len(words) > 1 else 0)


def _records(node: JsonNode) -> Iterator[JsonNode]:
    box = node.parent
    while box is not None and box.parent is not None:
        if box.kind == OBJECT and box.parent.kind == ARRAY:
            yield box
        box = box.parent


def described(doc: Outline, text: str, unit: int) -> str:
    """Describe a unit in words: the names on its path, then its value."""
    names: list[str] = []
    path = doc.nodes[unit].path
    while path > 0 and len(names) < _NAMES:
        if doc.keys[path] != "[]":
            names.append(" ".join(split_identifier(doc.keys[path].strip('"'))))
        path = doc.parents[path]
    return f"{' '.join(reversed(names))}: {text[doc.starts[unit] : doc.ends[unit]]}"
