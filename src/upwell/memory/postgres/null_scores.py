"""Measure and store the null scores of each scope (`memory/ranking/calibrate.py`)."""

import random
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from upwell.ground.errors import StoreError
from upwell.ground.postgres.connection import Postgres, Rows, Statement
from upwell.ground.trace import LOG
from upwell.ground.types.memory import Scope
from upwell.memory.lookups import SEQUENCE_BITS, candidates_from, words_by_stem
from upwell.memory.postgres.counts import (
    TermCounts,
    corpus_of,
    filter_of,
    holding,
    key_of,
    sizes_of,
)
from upwell.memory.postgres.lookup import NUMBERED, matches, merging, row_of
from upwell.memory.postgres.writing import NEXT_VERSION
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
from upwell.memory.ranking.signals import best_bm25
from upwell.memory.ranking.terms import query_words

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
