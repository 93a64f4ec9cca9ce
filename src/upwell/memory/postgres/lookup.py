"""Look up the candidates for a query in two round trips. The first reads the frequencies of the
query's words, files and symbols (`counts.py`, which needs another one after a change). The second
reads the matching memories, their neighbours and their successors.

The second round trip is one transaction. Statements that find memories add the memories' numbers to
a transaction-local setting, which the statements that read memories use.

Random queries are looked up in the same way, to measure the null scores of each scope
(`memory/ranking/calibrate.py`).
"""

import asyncio
import random
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from functools import partial
from math import log
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.errors import StoreError
from upwell.ground.postgres.connection import Postgres, Rows, Statement
from upwell.ground.trace import LOG
from upwell.ground.types.memory import Query, Scope
from upwell.memory.lookups import (
    MAX_JOINED,
    PER_ANCHOR,
    PER_TEXT,
    PER_TRIGGER,
    SEQUENCE_BITS,
    Lookup,
    MemoryRow,
    candidates_from,
    last_successor,
    ranges,
    stems_to_count,
    strictest_first,
    words_by_stem,
    worthwhile,
)
from upwell.memory.postgres.counts import (
    Overviews,
    PostgresFilter,
    TermCounts,
    corpus_of,
    counted,
    filter_of,
    holding,
    key_of,
    sizes_of,
)
from upwell.memory.postgres.vectors import PostgresQuestion
from upwell.memory.postgres.writing import (
    COLUMNS,
    ID,
    NAMESPACE,
    NEXT_VERSION,
    from_row,
    indexable,
    text_of,
)
from upwell.memory.ranking.calibrate import (
    BEST_OF,
    MAX_SAMPLE_CHARS,
    SAMPLES,
    SIZES,
    is_due,
    mean_and_spread,
    random_queries,
    usual,
)
from upwell.memory.ranking.scoring import NOTHING, Pool, Successor
from upwell.memory.ranking.signals import K1, B, Candidate, best_bm25
from upwell.memory.ranking.terms import MAX_TEXTS, Corpus, query_words, sound

MERGED_RATIO = 20
"""The postings of a pair of words are merged in order if the commoner word has at most this many
times the postings of the rarer word. Otherwise, each posting of the rarer word is looked up among
those of the commoner word. A look-up takes 3 µs, and reading the next posting takes 0.1 to 0.2
µs."""
_LEAST_IDF = 1e-6
READ = f"m.n, m.extra, m.keys, m.is_turn, {', '.join(f'm.{name}' for name in COLUMNS.split(', '))}"
_LEADING = 4
"""The number of columns in `READ` before `COLUMNS`."""

_NUMBERS = "upwell.found"
_NAMED = "upwell.named"
"""The setting that holds the numbers of the memories found by words, files, symbols and
triggers."""
_NOTE_NAMED = Statement(
    f"SELECT set_config('{_NAMED}', coalesce(current_setting('{_NUMBERS}', true), ''), true)", {}
)
_FOUND_SO_FAR = Statement(f"SELECT current_setting('{_NUMBERS}', true)", {})
_RANGES = "unnest(%(lows)s::bigint[], %(highs)s::bigint[]) AS span(low, high)"


_PLANNED_AS = """
    SELECT set_config('enable_mergejoin', '{merge}', true),
        set_config('enable_nestloop', '{loop}', true), set_config('plan_cache_mode', '{plan}', true)
"""
_MERGING = Statement(_PLANNED_AS.format(merge="on", loop="off", plan="force_custom_plan"), {})
_LOOKING_UP = Statement(_PLANNED_AS.format(merge="off", loop="on", plan="auto"), {})


def merging(matching: Sequence[Statement]) -> list[Statement]:
    """Surround these statements from `matches()` with planner settings that force merge joins
    between the postings of a pair, whatever statistics the planner has. All other parts of the
    statements are lateral subqueries, which these settings do not affect."""
    return [_MERGING, *matching, _LOOKING_UP]


_THESE = f"string_to_array(current_setting('{_NUMBERS}', true), ',')::bigint[]"
_THOSE_NAMED = f"string_to_array(current_setting('{_NAMED}', true), ',')::bigint[]"
# The lateral subquery with an offset makes the planner look up memories by key. For a plain join, a
# planner without statistics on the table may choose to read all memories of the tenant.
_LOOKED_UP = """CROSS JOIN LATERAL (
        SELECT * FROM upwell.memory m
        WHERE m.tenant = %(tenant)s AND m.n = listed.n OFFSET 0) AS m"""
_CANDIDATES = f"""
    WITH own AS MATERIALIZED (
        SELECT {READ} FROM (SELECT DISTINCT unnest({_THESE}) AS n) AS listed {_LOOKED_UP})
    SELECT * FROM own UNION ALL
    SELECT {READ} FROM (
        SELECT n + step AS n FROM own CROSS JOIN (VALUES (-1), (1)) AS near(step)
        WHERE is_turn AND (n + step) >> {SEQUENCE_BITS} = n >> {SEQUENCE_BITS}
        EXCEPT SELECT n FROM own) AS listed {_LOOKED_UP}"""
_OF_FOUND = f"""ANY(ARRAY(
    SELECT id FROM upwell.memory WHERE tenant = %(tenant)s AND n = ANY({_THESE})))"""


async def pool_of(
    postgres: Postgres,
    overviews: Overviews,
    query: Query,
    now: float,
    asking: Coroutine[Any, Any, PostgresQuestion | None] | None = None,
) -> Pool:
    """Return the candidates for `query`, with everything that ranking needs. The coroutine `asking`
    embeds the query while the frequencies are read. Raises StoreError if the database failed."""
    texts = [text for text in query.texts[:MAX_TEXTS] if text.strip()]
    word_of = {text: words_by_stem(text) for text in texts}
    counting = counted(postgres, overviews, query, word_of.values(), now)
    if asking:
        counts, question = await asyncio.gather(counting, asking)
    else:
        counts, question = await counting, None
    if not counts.corpus.memories or not (counts.has_file or query.triggers):
        return NOTHING
    lookups = [counts.lookup(text, words) for text, words in word_of.items()]
    readings = [lookup.reading for lookup in lookups]
    found = await _found(postgres, query, counts, lookups, question)
    likeness = question.likeness(found.vectors, counts.corpus.scopes) if question else None
    rows = found.rows
    if likeness:
        from upwell.memory.vectors import NEAREST

        near = [n for n in likeness.cosines if n in found.by_meaning]
        rows = [row for row in rows if row[0] not in near[NEAREST:]]
    tenant, keep = query.scope.tenant, counts.keep
    own = [row_of(tenant, row) for row in rows if keep.passes(row[_LEADING:])]
    heads = {row[1 + _LEADING + ID]: row[1:] for row in found.newer}
    successors = {
        old: Successor(new, _candidate(tenant, heads[new], keep))
        for old, new in last_of(found.newer).items()
        if any(row.id == old for row in own)
    }
    return Pool(
        candidates=candidates_from(own, stems_to_count(readings, counts.joins)),
        joins=counts.joins,
        triggered=found.triggered,
        readings=readings,
        corpus=counts.corpus,
        null_scores=counts.null_scores,
        likeness=likeness,
        successors=successors,
    )


class _Found(Struct, frozen=True):
    """The result of the second round trip. `triggered` maps a memory's number to the trigger that
    found it. `newer` has the rows of successors. `by_meaning` has the memories found by their
    vectors alone."""

    triggered: Mapping[int, str]
    rows: Rows
    newer: Rows
    vectors: Rows = ()
    by_meaning: frozenset[int] = frozenset()


async def _found(
    postgres: Postgres,
    query: Query,
    counts: TermCounts,
    lookups: Sequence[Lookup],
    question: PostgresQuestion | None,
) -> _Found:
    finding = [
        statement
        for lookup in worthwhile(lookups)
        if (statement := matches(lookup, counts.corpus, counts.mean_tokens, counts.keep))
    ]
    has_pairs = any(len(clause.stems) > 1 for lookup in lookups for clause in lookup.clauses)
    finding = [_noted(statement) for statement in finding]
    if has_pairs:
        finding = merging(finding)
    if counts.joins:
        finding.append(_noted(_by_anchors(strictest_first(counts.joins), counts)))
    triggers = None
    if query.triggers:
        names = [sound(trigger) for trigger in query.triggers]
        values = {**_spans(counts.corpus), "most": PER_TRIGGER}
        triggers = _newest_with("memory_trigger", "trigger", names, counts.keep, values)
    nearest = question.nearest(counts.corpus, counts.keep) if question else None
    if not finding and not triggers and not nearest:
        return _Found({}, (), ())
    statements = [*finding, *([triggers, _noted(triggers)] if triggers else [])]
    if nearest:
        statements += [_NOTE_NAMED, _noted(nearest), _FOUND_SO_FAR]
    before = len(statements)
    statements.append(Statement(_CANDIDATES, {}))
    if counts.supersedes:
        seen = {**_spans(counts.corpus), "now": counts.keep.now}
        statements.append(Statement(successors_sql(_OF_FOUND), seen))
    if question:
        statements.append(question.statement(_THESE, _THOSE_NAMED if nearest else _THESE))
    results = await postgres.ask(query.scope.tenant, *statements)
    triggered: dict[int, str] = {}
    for place, n in results[len(finding)] if triggers else ():
        triggered.setdefault(n, query.triggers[place - 1])
    by_meaning: frozenset[int] = frozenset()
    if nearest:
        by_meaning = _numbers_in(results[before - 1]) - _numbers_in(results[before - 3])
    rows = results[before:]
    newer = rows[1] if counts.supersedes else ()
    return _Found(triggered, rows[0], newer, rows[-1] if question else (), by_meaning)


def _numbers_in(found: Rows) -> frozenset[int]:
    listed = found[0][0]
    return frozenset(map(int, listed.split(","))) if listed else frozenset()


def _noted(finding: Statement) -> Statement:
    return Statement(
        f"""SELECT length(set_config('{_NUMBERS}', concat_ws(',',
                nullif(current_setting('{_NUMBERS}', true), ''), string_agg(n::text, ',')), true))
            FROM ({finding.sql}) AS found""",
        finding.values,
    )


def matches(
    lookup: Lookup, corpus: Corpus, mean_tokens: float, keep: PostgresFilter, limit: int = PER_TEXT
) -> Statement | None:
    """Return the statement that finds the best matches for a lookup, best first. Returns None if
    nothing can match."""
    if not lookup.clauses:
        return None
    values = {**_spans(corpus), **keep.values, "limit": limit, "mean": mean_tokens}
    if lookup.newest_only:
        newest = f"""
            SELECT p.n FROM {_RANGES} CROSS JOIN LATERAL (
                SELECT w.n FROM upwell.posting w {keep.joined("w")}
                WHERE w.tenant = %(tenant)s AND w.stem = %(stem)s
                    AND w.n BETWEEN span.low AND span.high
                ORDER BY w.n DESC LIMIT %(limit)s) AS p
            ORDER BY p.n DESC LIMIT %(limit)s"""
        return Statement(newest, values | {"stem": lookup.clauses[0].stems[0]})
    few = lookup.needs_bm25
    worths = lookup.reading.idf
    if few:
        # The IDF as FTS5 computes it. The counts may have been read later than the number of
        # memories, and may exceed it.
        worths = {
            stem: max(_LEAST_IDF, log((max(0, corpus.memories - count) + 0.5) / (count + 0.5)))
            for stem, count in lookup.reading.holding.items()
        }
    singles = [clause.stems for clause in lookup.clauses if len(clause.stems) == 1]
    pairs = [clause.stems for clause in lookup.clauses if len(clause.stems) > 1]
    spans = list(ranges(corpus.scopes)) if pairs else []
    for number, (low, high) in enumerate(spans):
        values |= {f"low_{number}": low, f"high_{number}": high}
    parts = []
    if singles:
        stems = [stem for (stem,) in singles]
        values |= {"stems": stems, "worths": [worths[stem] for stem in stems]}
        parts.append(
            f"""
            SELECT p.n, {_worth("p", "c.worth", few)} AS worth
            FROM unnest(%(stems)s::text[], %(worths)s::float8[]) AS c(stem, worth)
            CROSS JOIN {_RANGES} CROSS JOIN LATERAL (
                SELECT * FROM upwell.posting w WHERE w.tenant = %(tenant)s AND w.stem = c.stem
                    AND w.n BETWEEN span.low AND span.high OFFSET 0) AS p"""
        )
    for number, (left, right) in enumerate(pairs):
        values |= {f"left_{number}": left, f"left_worth_{number}": worths[left]}
        values |= {f"right_{number}": right, f"right_worth_{number}": worths[right]}
        is_merged = lookup.reading.holding[right] <= MERGED_RATIO * lookup.reading.holding[left]
        parts += [_pair_sql(number, span, few, is_merged=is_merged) for span in range(len(spans))]
    return Statement(
        f"""SELECT total.n FROM (
                SELECT n, sum(worth) AS worth FROM ({" UNION ALL ".join(parts)}) AS clause
                GROUP BY n) AS total {keep.joined("total")}
            ORDER BY total.worth DESC, total.n DESC LIMIT %(limit)s""",
        values,
    )


def _pair_sql(number: int, span: int, few: bool, *, is_merged: bool) -> str:
    """Return the SQL that finds the memories in a span that contain both stems of a pair. If
    `is_merged`, the postings of both stems are read in order. Otherwise, each posting of the left
    stem is looked up among those of the right stem."""
    low, high = f"%(low_{span})s::bigint", f"%(high_{span})s::bigint"
    worth = (
        f"{_worth('a', f'%(left_worth_{number})s::float8', few)} + "
        f"{_worth('b', f'%(right_worth_{number})s::float8', few)}"
    )
    left, right = (
        f"{name}.tenant = %(tenant)s AND {name}.stem = %({side}_{number})s "
        f"AND {name}.n BETWEEN {low} AND {high}"
        for name, side in (("a", "left"), ("b", "right"))
    )
    if is_merged:
        join = f"JOIN upwell.posting b ON {right} AND b.n = a.n"
    else:
        # The offset prevents the planner from choosing another join.
        join = f"""CROSS JOIN LATERAL (
            SELECT * FROM upwell.posting b WHERE {right} AND b.n = a.n OFFSET 0) AS b"""
    return f"""
        SELECT a.n, {worth} AS worth FROM upwell.posting a {join} WHERE {left}"""


def _worth(posting: str, worth: str, few: bool) -> str:
    """Return the SQL for a posting's contribution to the score. If there are `few` clauses, this is
    the posting's part of BM25, otherwise only the rarity of its word.
    """
    if not few:
        return worth
    length = f"{1 - B} + {B} * {posting}.length / %(mean)s::float8"
    frequency = f"{posting}.frequency"
    return f"{worth} * {frequency} * {K1 + 1} / ({frequency} + {K1} * ({length}))"


def _by_anchors(keys: Sequence[str], counts: TermCounts) -> Statement:
    """Return the statement that finds the newest memories under these keys in each scope. If there
    are more than `MAX_JOINED`, those under earlier keys are preferred."""
    scopes = counts.corpus.scopes
    spans = {
        "lows": [scope << SEQUENCE_BITS for scope in scopes],
        "highs": [((scope + 1) << SEQUENCE_BITS) - 1 for scope in scopes],
    }
    values = {**spans, "most": PER_ANCHOR, "most_joined": MAX_JOINED}
    newest = _newest_with("about", "key", keys, counts.keep, values)
    return Statement(
        f"""SELECT n FROM (
                SELECT n, row_number() OVER () AS rank FROM ({newest.sql}) AS newest) AS ranked
            GROUP BY n ORDER BY min(rank) LIMIT %(most_joined)s""",
        newest.values,
    )


def _newest_with(
    table: str,
    column: str,
    names: Sequence[str],
    keep: PostgresFilter,
    values: Mapping[str, object],
) -> Statement:
    """Return the statement that lists, for each of these names, the newest `most` memories in each
    span. The spans go from `lows` to `highs`. A row has the name's position in `names`, counted
    from 1, and the memory's number."""
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


def successors_sql(superseded: str) -> str:
    """Return the SQL that lists the direct and indirect successors of certain memories. Only
    unexpired successors with numbers in the ranges `lows` to `highs` are listed. `superseded` is
    the SQL after `supersedes =` and selects the superseded memories."""
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


def last_of(newer: Rows) -> dict[str, str]:
    """Map each superseded id in the rows of `successors_sql` to the id of its last successor."""
    direct = {row[0]: row[1 + _LEADING + ID] for row in newer}
    return {old: last_successor(direct, old) for old in direct}


def _candidate(tenant: str, row: Sequence[Any], keep: PostgresFilter) -> Candidate | None:
    if not keep.passes(row[_LEADING:]):
        return None
    return candidates_from([row_of(tenant, row)], ())[row[0]]


def row_of(tenant: str, row: Sequence[Any]) -> MemoryRow:
    n, extra, keys, _, *columns = row
    load = partial(from_row, tenant, columns)
    return MemoryRow(n, columns[ID], columns[NAMESPACE], text_of(columns), extra, keys, load)


NUMBERED = f"""
    SELECT {READ} FROM upwell.memory m WHERE m.tenant = %(tenant)s AND m.n = ANY(%(numbers)s)"""


_MEASURED = """
    SELECT scope, max(memories) FROM upwell.null_score WHERE tenant = %(tenant)s GROUP BY scope"""
_DRAWN = """
    SELECT drawn.text FROM unnest(%(lows)s::bigint[], %(highs)s::bigint[]) AS span(low, high)
    CROSS JOIN LATERAL (
        SELECT m.text FROM upwell.memory m
        WHERE m.tenant = %(tenant)s AND m.n BETWEEN span.low AND span.high
        ORDER BY m.n LIMIT 1) AS drawn"""
_STORED = """
    INSERT INTO upwell.null_score AS old (tenant, scope, words, mean, spread, memories)
    SELECT %(tenant)s, %(scope)s, words, mean, spread, %(memories)s
    FROM unnest(%(sizes)s::integer[], %(means)s::float8[], %(spreads)s::float8[])
        AS measured(words, mean, spread)
    ON CONFLICT (tenant, scope, words) DO UPDATE SET mean = excluded.mean,
        spread = excluded.spread, memories = excluded.memories"""


async def measure(postgres: Postgres, tenant: str, projects: Iterable[str | None]) -> None:
    """Measure the null scores of each of these projects, and of all projects together, if they
    have grown enough since the last measurement. A failure is logged: the memories that were just
    added are stored, and until the next addition, searches use the old null scores."""
    try:
        for project in dict.fromkeys([*projects, None]):
            await measure_if_due(postgres, Scope(tenant=tenant, project=project))
    except StoreError as error:
        LOG.warning("cannot measure null scores: %s", error)


async def measure_if_due(postgres: Postgres, scope: Scope) -> None:
    """Measure and store the null scores of this scope, if enough visible memories have been added
    since the last measurement. Raises StoreError if the database failed."""
    sizes, measured = await postgres.ask(scope.tenant, sizes_of(scope), Statement(_MEASURED, {}))
    corpus, mean_tokens = corpus_of(sizes)
    key = key_of(scope, sizes)
    before = {int(number): int(memories) for number, memories in measured}
    if key is None or not is_due(corpus.memories, before.get(key)):
        return
    samples = await _sample_words(postgres, scope, sizes, random.Random(corpus.memories))
    if not samples:
        return
    counts = TermCounts(
        corpus=corpus,
        mean_tokens=mean_tokens,
        holding={},
        joins={},
        null_scores=usual(corpus),
        keep=filter_of((), 0.0, expired=False),
    )
    figures = [await _by_chance(postgres, scope, counts, samples, words) for words in SIZES]
    values = {
        "scope": key,
        "memories": corpus.memories,
        "sizes": list(SIZES),
        "means": [mean for mean, _ in figures],
        "spreads": [spread for _, spread in figures],
    }
    # The new version makes every process read the null scores again.
    await postgres.ask(scope.tenant, Statement(_STORED, values), NEXT_VERSION)


async def _sample_words(
    postgres: Postgres, scope: Scope, sizes: Rows, rng: random.Random
) -> list[list[str]]:
    filled = [(int(row[0]), int(row[5]), int(row[2])) for row in sizes if row[2] > 0]
    drawn = rng.choices(filled, [memories for _, _, memories in filled], k=4 * SAMPLES)
    spans = [
        (number << SEQUENCE_BITS | rng.randint(1, last), number << SEQUENCE_BITS | last)
        for number, last, _ in drawn
    ]
    values = {"lows": [low for low, _ in spans], "highs": [high for _, high in spans]}
    (rows,) = await postgres.ask(scope.tenant, Statement(_DRAWN, values))
    samples = (query_words(text[:MAX_SAMPLE_CHARS]) for (text,) in rows)
    return [words for words in samples if words]


async def _by_chance(
    postgres: Postgres, scope: Scope, counts: TermCounts, samples: Sequence[list[str]], words: int
) -> tuple[float, float]:
    texts = random_queries(samples, words)
    word_of = {text: words_by_stem(text) for text in texts}
    stems = sorted(set().union(*word_of.values()))
    (rows,) = await postgres.ask(scope.tenant, holding(scope.project, stems))
    counts = replace(counts, holding={stem: int(count) for stem, count in rows})
    lookups = [counts.lookup(text, word_of[text]) for text in texts]
    statements = [
        matches(lookup, counts.corpus, counts.mean_tokens, counts.keep, BEST_OF)
        for lookup in lookups
    ]
    matching = merging([statement for statement in statements if statement])
    found = iter((await postgres.ask(scope.tenant, *matching))[1:-1])
    numbers = [[row[0] for row in next(found)] if statement else [] for statement in statements]
    every = sorted({n for own in numbers for n in own})
    (rows,) = await postgres.ask(scope.tenant, Statement(NUMBERED, {"numbers": every}))
    candidates = candidates_from([row_of(scope.tenant, row) for row in rows], stems)
    return mean_and_spread(
        [
            best_bm25(
                lookup.reading, counts.corpus, [candidates[n] for n in own if n in candidates]
            )
            for lookup, own in zip(lookups, numbers, strict=True)
        ]
    )
