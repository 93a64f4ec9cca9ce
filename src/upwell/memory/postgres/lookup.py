"""Look up the candidates of a query in three round trips: the frequencies of its words, files and
symbols; the numbers of the memories that contain them; and these memories themselves.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import log
from typing import Any

from upwell.ground.postgres.connection import Postgres, Rows, Statement
from upwell.ground.project import owners_of
from upwell.ground.types.memory import Query, Scope
from upwell.ground.types.principal import EVERY, PRIVATE, is_visible
from upwell.memory.lookups import (
    FEW_CLAUSES,
    MAX_JOINED,
    PER_ANCHOR,
    PER_TEXT,
    PER_TRIGGER,
    SEQUENCE_BITS,
    Lookup,
    Row,
    candidates_from,
    join_of,
    last_successor,
    planned,
    ranges,
    stems_to_count,
    strictest_first,
    words_by_stem,
    worthwhile,
)
from upwell.memory.postgres.rows import (
    COLUMNS,
    EXPIRES,
    ID,
    NAMESPACE,
    PINNED,
    from_row,
    indexable,
    text_of,
)
from upwell.memory.ranking.joins import Join, join_keys
from upwell.memory.ranking.null_scores import SIZES, NullScores, usual
from upwell.memory.ranking.query import MAX_TEXTS, Corpus
from upwell.memory.ranking.scoring import Pool, Successor
from upwell.memory.ranking.signals import K1, B, Candidate
from upwell.memory.ranking.terms import sound

WHOLE_TENANT = -1
"""The scope of the null scores of all projects of a tenant."""
_LEAST_IDF = 1e-6
_VISIBLE = "(%(project)s::text IS NULL OR project IN ('', %(project)s, %(address)s))"
_VISIBLE_SCOPES = f"SELECT no FROM upwell.scope WHERE tenant = %(tenant)s AND {_VISIBLE}"
READ = f"m.n, m.extra, m.keys, m.is_turn, {', '.join(f'm.{name}' for name in COLUMNS.split(', '))}"
_LEADING = 4
"""The number of columns of `READ` before `COLUMNS`."""

SIZES_OF_SCOPES = f"""
    SELECT no, project, memories, words, tokens, last FROM upwell.scope
    WHERE tenant = %(tenant)s AND {_VISIBLE} ORDER BY no"""
HOLDING = f"""
    SELECT stem, sum(memories)::bigint FROM upwell.term
    WHERE tenant = %(tenant)s AND stem = ANY(%(stems)s) AND scope IN ({_VISIBLE_SCOPES})
    GROUP BY stem"""
_JOINED = f"""
    SELECT key, sum(memories)::bigint FROM upwell.anchor
    WHERE tenant = %(tenant)s AND key = ANY(%(keys)s) AND scope IN ({_VISIBLE_SCOPES})
    GROUP BY key"""
_NULL_SCORES = f"""
    SELECT scope, mean, spread FROM upwell.null_score
    WHERE tenant = %(tenant)s AND (scope = {WHOLE_TENANT} OR scope IN ({_VISIBLE_SCOPES}))
    ORDER BY scope, words"""
_FAILING = """
    SELECT EXISTS (SELECT FROM upwell.memory
                   WHERE tenant = %(tenant)s AND expires_at <= %(now)s),
           EXISTS (SELECT FROM upwell.memory WHERE tenant = %(tenant)s AND pinned)"""
_RANGES = "unnest(%(lows)s::bigint[], %(highs)s::bigint[]) AS span(low, high)"


@dataclass(frozen=True, slots=True)
class Filter:
    """The memories that a search may return: those of its namespaces that have not expired at
    `now`. Standing rules are excluded because they have a channel of their own. `condition` is the
    SQL for a row `m`, empty if every memory meets it."""

    namespaces: tuple[str, ...]
    now: float
    condition: str = ""

    @property
    def values(self) -> dict[str, object]:
        return {**namespace_values(self.namespaces), "now": self.now}

    def joined(self, other: str) -> str:
        """Return the SQL that joins the memories of a table and keeps those that pass."""
        if not self.condition:
            return ""
        return (
            f"JOIN upwell.memory m ON m.tenant = %(tenant)s AND m.n = {other}.n "
            f"AND {self.condition}"
        )

    def passes(self, row: Sequence[Any]) -> bool:
        """Return whether a row of `COLUMNS` meets the condition."""
        if row[PINNED] or not is_visible(row[NAMESPACE], self.namespaces):
            return False
        return row[EXPIRES] is None or row[EXPIRES] > self.now


def within(column: str, patterns: Sequence[str]) -> str:
    """Return the SQL for "this namespace is among the patterns" (`is_visible`), which has
    `namespace_values`."""
    parts = [f"{column} = ANY(%(namespaces)s)"]
    if any(pattern.endswith("/*") for pattern in patterns):
        parts.append(
            f"EXISTS (SELECT FROM unnest(%(below)s::text[]) AS start WHERE "
            f"starts_with({column}, start))"
        )
    if EVERY in patterns:
        parts.append(f"NOT starts_with({column}, '{PRIVATE}')")
    return f"({' OR '.join(parts)})"


def namespace_values(patterns: Sequence[str]) -> dict[str, object]:
    """Return the values for `within`."""
    below = [pattern[:-1] for pattern in patterns if pattern.endswith("/*")]
    return {"namespaces": list(patterns), "below": below}


def filter_of(
    namespaces: tuple[str, ...], now: float, *, expired: bool = True, pinned: bool = True
) -> Filter:
    """Return the filter of a search. `expired` and `pinned` tell whether the store has such
    memories.
    """
    conditions = [within("m.namespace", namespaces)] if namespaces else []
    conditions += ["(m.expires_at IS NULL OR m.expires_at > %(now)s)"] if expired else []
    conditions += ["NOT m.pinned"] if pinned else []
    return Filter(namespaces, now, " AND ".join(conditions))


@dataclass(frozen=True, slots=True)
class Counts:
    """The result of the first round trip: the frequencies of a query's words and keys in the scope.
    `mean_tokens` is the mean length of its memories, hidden words included.
    """

    corpus: Corpus
    mean_tokens: float
    holding: Mapping[str, int]
    joins: Mapping[str, Join]
    null_scores: NullScores
    keep: Filter

    def lookup(self, text: str, word_of: Mapping[str, str]) -> Lookup:
        holding = {stem: self.holding.get(stem, 0) for stem in word_of}
        return planned(text, word_of, holding, self.corpus)

    def holding_these(self, holding: Mapping[str, int]) -> "Counts":
        """Return these counts with other stems."""
        return replace(self, holding={stem: int(count) for stem, count in holding.items()})


def sizes_of(scope: Scope) -> Statement:
    """Return the statement that lists the scopes that a query may see, with their sizes."""
    return Statement(SIZES_OF_SCOPES, owners(scope.project))


def owners(project: str | None) -> dict[str, object]:
    """Return the values that name the project of a query, in both of its forms."""
    path, address = owners_of(project) if project else (project, project)
    return {"project": path, "address": address}


def corpus_of(rows: Rows) -> tuple[Corpus, float]:
    """Return the corpus of the rows of `sizes_of`, and the mean length of its memories."""
    memories, words, tokens = (sum(row[index] for row in rows) for index in (2, 3, 4))
    corpus = Corpus(tuple(row[0] for row in rows), int(memories), int(words))
    return corpus, float(tokens / memories) if memories else 1.0


async def pool_of(postgres: Postgres, query: Query, now: float) -> Pool:
    """Return the candidates of `query`, with everything that ranking needs.

    Raises:
        StoreError: the database failed.
    """
    tenant = query.scope.tenant
    texts = [text for text in query.texts[:MAX_TEXTS] if text.strip()]
    word_of = {text: words_by_stem(text) for text in texts}
    counts = await _counted(postgres, query, word_of.values(), now)
    if not counts.corpus.memories:
        return Pool({}, {}, (), counts.corpus, usual(counts.corpus))
    lookups = [counts.lookup(text, words) for text, words in word_of.items()]
    numbers, triggered = await _found(postgres, query, counts, lookups)
    readings = [lookup.reading for lookup in lookups]
    gathered, successors = await _gathered(
        postgres, tenant, counts, numbers, stems_to_count(readings, counts.joins)
    )
    return Pool(
        candidates=gathered,
        joins=counts.joins,
        triggered=triggered,
        readings=readings,
        corpus=counts.corpus,
        null_scores=counts.null_scores,
        successors=successors,
    )


async def _counted(
    postgres: Postgres, query: Query, words: Iterable[Mapping[str, str]], now: float
) -> Counts:
    scope = query.scope
    keys = join_keys(query.paths, query.symbols, scope.project)
    stems = set().union(*words)
    project = owners(scope.project)
    sizes, holding, joined, measured, failing = await postgres.ask(
        scope.tenant,
        sizes_of(scope),
        Statement(HOLDING, {**project, "stems": list(stems)}),
        Statement(_JOINED, {**project, "keys": [indexable(key) for key in keys]}),
        Statement(_NULL_SCORES, project),
        Statement(_FAILING, {"now": now}),
    )
    corpus, mean_tokens = corpus_of(sizes)
    return Counts(
        corpus=corpus,
        mean_tokens=mean_tokens,
        holding={stem: int(count) for stem, count in holding},
        joins={key: join_of(keys[key], count) for key, count in _named(keys, joined).items()},
        null_scores=_null_scores(measured, key_of(scope, sizes)) or usual(corpus),
        keep=filter_of(scope.namespaces, now, expired=failing[0][0], pinned=failing[0][1]),
    )


def _named(keys: Iterable[str], counted: Rows) -> dict[str, int]:
    """Map the keys that memories have to how many have them."""
    count_of = {key: int(count) for key, count in counted}
    return {key: count_of[indexable(key)] for key in keys if indexable(key) in count_of}


def key_of(scope: Scope, sizes: Rows) -> int | None:
    """Return the scope under which the null scores for this query are stored: its project's, or the
    global one while the project has no memories. None if there are no memories at all.
    """
    if not sizes:
        return None
    numbers = {row[1]: int(row[0]) for row in sizes}
    if scope.project is None:
        return WHOLE_TENANT
    names = (*owners_of(scope.project), "")
    return next((numbers[name] for name in names if name in numbers), None)


def _null_scores(rows: Rows, key: int | None) -> NullScores | None:
    own = [(mean, spread) for scope, mean, spread in rows if scope == key]
    if len(own) != len(SIZES):
        return None
    return NullScores(*zip(*own, strict=True))


async def _found(
    postgres: Postgres, query: Query, counts: Counts, lookups: Sequence[Lookup]
) -> tuple[list[int], dict[int, str]]:
    """Return the numbers of the memories that match, and the triggers of those that have one."""
    by_words = [
        statement
        for lookup in worthwhile(lookups)
        if (statement := matches(lookup, counts.corpus, counts.mean_tokens, counts.keep))
    ]
    statements = [
        *by_words,
        _by_anchors(strictest_first(counts.joins), counts),
        _by_triggers(query.triggers, counts),
    ]
    *matched, anchored, with_trigger = await postgres.ask(query.scope.tenant, *statements)
    numbers = dict.fromkeys(row[0] for rows in matched for row in rows)
    numbers |= dict.fromkeys(_strictest(anchored))
    triggered: dict[int, str] = {}
    for place, n in with_trigger:
        triggered.setdefault(n, query.triggers[place - 1])
    return [*numbers, *(n for n in triggered if n not in numbers)], triggered


def _strictest(rows: Rows) -> list[int]:
    """Return the memories of the strictest keys."""
    return list(dict.fromkeys(n for _, n in rows))[:MAX_JOINED]


def matches(
    lookup: Lookup, corpus: Corpus, mean_tokens: float, keep: Filter, limit: int = PER_TEXT
) -> Statement | None:
    """Return the statement that finds the memories that match a lookup best, best first; None if
    nothing can match."""
    if not lookup.clauses:
        return None
    values = {**_spans(corpus), **keep.values, "limit": limit, "mean": mean_tokens}
    if lookup.newest_only:
        return Statement(_newest_sql(keep), values | {"stem": lookup.clauses[0].stems[0]})
    few = len(lookup.clauses) <= FEW_CLAUSES
    worths = _worths_of(lookup, corpus) if few else lookup.reading.idf
    singles = [clause.stems for clause in lookup.clauses if len(clause.stems) == 1]
    pairs = [clause.stems for clause in lookup.clauses if len(clause.stems) > 1]
    parts = [*([_single_sql(few)] if singles else []), *([_pair_sql(few)] if pairs else [])]
    for name, stems in (
        ("single", [stem for (stem,) in singles]),
        ("left", [left for left, _ in pairs]),
        ("right", [right for _, right in pairs]),
    ):
        values |= {f"{name}_stems": stems, f"{name}_worths": [worths[stem] for stem in stems]}
    return Statement(
        f"""SELECT total.n FROM (
                SELECT n, sum(worth) AS worth FROM ({" UNION ALL ".join(parts)}) AS clause
                GROUP BY n) AS total {keep.joined("total")}
            ORDER BY total.worth DESC, total.n DESC LIMIT %(limit)s""",
        values,
    )


def _newest_sql(keep: Filter) -> str:
    return f"""
        SELECT p.n FROM {_RANGES} CROSS JOIN LATERAL (
            SELECT w.n FROM upwell.posting w {keep.joined("w")}
            WHERE w.tenant = %(tenant)s AND w.stem = %(stem)s
                AND w.n BETWEEN span.low AND span.high
            ORDER BY w.n DESC LIMIT %(limit)s) AS p
        ORDER BY p.n DESC LIMIT %(limit)s"""


def _single_sql(few: bool) -> str:
    return f"""
        SELECT p.n, {_worth("p", "c.worth", few)} AS worth
        FROM unnest(%(single_stems)s::text[], %(single_worths)s::float8[]) AS c(stem, worth)
        CROSS JOIN {_RANGES}
        JOIN upwell.posting p ON p.tenant = %(tenant)s AND p.stem = c.stem
            AND p.n BETWEEN span.low AND span.high"""


def _pair_sql(few: bool) -> str:
    worth = f"{_worth('a', 'c.left_worth', few)} + {_worth('b', 'c.right_worth', few)}"
    return f"""
        SELECT a.n, {worth} AS worth
        FROM unnest(%(left_stems)s::text[], %(right_stems)s::text[],
                    %(left_worths)s::float8[], %(right_worths)s::float8[])
            AS c(left_stem, right_stem, left_worth, right_worth)
        CROSS JOIN {_RANGES}
        JOIN upwell.posting a ON a.tenant = %(tenant)s AND a.stem = c.left_stem
            AND a.n BETWEEN span.low AND span.high
        JOIN upwell.posting b ON b.tenant = %(tenant)s AND b.stem = c.right_stem AND b.n = a.n"""


def _worth(posting: str, worth: str, few: bool) -> str:
    """Return the SQL of a posting's contribution to the score: its part of BM25, or the rarity of
    its word.
    """
    if not few:
        return worth
    length = f"{1 - B} + {B} * {posting}.length / %(mean)s::float8"
    frequency = f"{posting}.frequency"
    return f"{worth} * {frequency} * {K1 + 1} / ({frequency} + {K1} * ({length}))"


def _worths_of(lookup: Lookup, corpus: Corpus) -> dict[str, float]:
    """Return the factor of each stem in BM25, as FTS5 computes it."""
    # The counts were read after the number of memories, which another process may have raised.
    return {
        stem: max(_LEAST_IDF, log((max(0, corpus.memories - count) + 0.5) / (count + 0.5)))
        for stem, count in lookup.reading.holding.items()
    }


def _by_anchors(keys: Sequence[str], counts: Counts) -> Statement:
    """Return the statement that finds the newest memories under these keys, in their order, in each
    scope."""
    scopes = counts.corpus.scopes
    spans = {
        "lows": [scope << SEQUENCE_BITS for scope in scopes],
        "highs": [((scope + 1) << SEQUENCE_BITS) - 1 for scope in scopes],
    }
    return _newest_with("about", "key", keys, counts.keep, {**spans, "most": PER_ANCHOR})


def _by_triggers(triggers: Sequence[str], counts: Counts) -> Statement:
    """Return the statement that finds the newest memories with one of these triggers, in their
    order."""
    values = {**_spans(counts.corpus), "most": PER_TRIGGER}
    names = [sound(trigger) for trigger in triggers]
    return _newest_with("memory_trigger", "trigger", names, counts.keep, values)


def _newest_with(
    table: str, column: str, names: Sequence[str], keep: Filter, values: Mapping[str, object]
) -> Statement:
    """Return the statement that lists the newest `most` memories of each span from `lows` to
    `highs` with each of these names, after the place of the name."""
    return Statement(
        f"""SELECT k.place, p.n
            FROM unnest(%(names)s::text[]) WITH ORDINALITY AS k(name, place)
            CROSS JOIN {_RANGES} CROSS JOIN LATERAL (
                SELECT t.n FROM upwell.{table} t {keep.joined("t")}
                WHERE t.tenant = %(tenant)s AND t.{column} = k.name
                    AND t.n BETWEEN span.low AND span.high
                ORDER BY t.n DESC LIMIT %(most)s) AS p
            ORDER BY k.place, span.low, p.n DESC""",
        {**keep.values, **values, "names": [indexable(name) for name in names]},
    )


def _spans(corpus: Corpus) -> dict[str, object]:
    spans = list(ranges(corpus.scopes))
    return {"lows": [low for low, _ in spans], "highs": [high for _, high in spans]}


NUMBERED = f"""
    SELECT {READ} FROM upwell.memory m WHERE m.tenant = %(tenant)s AND m.n = ANY(%(numbers)s)"""
_CANDIDATES = f"""
    WITH own AS ({NUMBERED})
    SELECT * FROM own UNION ALL
    SELECT {READ} FROM upwell.memory m
    WHERE m.tenant = %(tenant)s AND m.n <> ALL(%(numbers)s) AND m.n IN (
        SELECT n + step FROM own CROSS JOIN (VALUES (-1), (1)) AS near(step)
        WHERE is_turn AND (n + step) >> {SEQUENCE_BITS} = n >> {SEQUENCE_BITS})"""
OF_FOUND = """ANY(ARRAY(
    SELECT id FROM upwell.memory WHERE tenant = %(tenant)s AND n = ANY(%(numbers)s)))"""


def successors_sql(superseded: str) -> str:
    """Return the statement that lists the living memories within the ranges that supersede some
    memories, those that supersede them in turn, and so on. `superseded` completes
    `supersedes = …`."""
    living = f"""(m.expires_at IS NULL OR m.expires_at > %(now)s) AND EXISTS (
        SELECT FROM {_RANGES} WHERE m.n BETWEEN span.low AND span.high)"""
    return f"""
        WITH RECURSIVE chain AS (
            SELECT m.supersedes, m.id, m.n FROM upwell.memory m
            WHERE m.tenant = %(tenant)s AND m.supersedes = {superseded} AND {living}
            UNION
            SELECT m.supersedes, m.id, m.n FROM upwell.memory m
            JOIN chain ON m.tenant = %(tenant)s AND m.supersedes = chain.id
            WHERE {living})
        SELECT chain.supersedes, {READ} FROM chain
        JOIN upwell.memory m ON m.tenant = %(tenant)s AND m.n = chain.n
        WHERE chain.supersedes <> chain.id ORDER BY m.created_at, m.n"""


async def _gathered(
    postgres: Postgres,
    tenant: str,
    counts: Counts,
    numbers: Sequence[int],
    stems: Collection[str],
) -> tuple[dict[int, Candidate], dict[str, Successor]]:
    """Return the candidates with these numbers, the neighbours of the conversational turns among
    them, and the successors of superseded ones.
    """
    keep, values = counts.keep, {"numbers": list(numbers)}
    rows, newer = await postgres.ask(
        tenant,
        Statement(_CANDIDATES, values),
        Statement(successors_sql(OF_FOUND), {**_spans(counts.corpus), **values, "now": keep.now}),
    )
    own = [row_of(tenant, row) for row in rows if keep.passes(row[_LEADING:])]
    heads = {row[0]: row[1:] for row in newer}
    head_of = {head[_LEADING + ID]: head for head in heads.values()}
    successors = {
        old: Successor(new, _candidate(tenant, head_of[new], keep))
        for old, new in last_of(newer).items()
        if any(row.id == old for row in own)
    }
    return candidates_from(own, stems), successors


def last_of(newer: Rows) -> dict[str, str]:
    """Map each superseded id of the rows of `successors_sql` to the id of the last successor."""
    direct = {row[0]: row[1 + _LEADING + ID] for row in newer}
    return {old: last_successor(direct, old) for old in direct}


def _candidate(tenant: str, row: Sequence[Any], keep: Filter) -> Candidate | None:
    if not keep.passes(row[_LEADING:]):
        return None
    return candidates_from([row_of(tenant, row)], ())[row[0]]


def row_of(tenant: str, row: Sequence[Any]) -> Row:
    """Convert a row of `READ` to the row from which a candidate is made."""
    n, extra, keys, _, *columns = row
    load = partial(from_row, tenant, columns)
    return Row(n, columns[ID], columns[NAMESPACE], text_of(columns), extra, keys, load)
