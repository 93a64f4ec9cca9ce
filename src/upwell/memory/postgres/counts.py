"""Read what a search must know before it looks for memories: how many memories are visible, and how
many of them contain each of the query's words, files and symbols.

One round trip reads the version of the tenant's memories and the frequencies. Everything that does
not depend on the query is cached until the version changes.
"""

import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from upwell.ground.postgres.connection import Postgres, Rows, Statement
from upwell.ground.project import owners_of
from upwell.ground.types.memory import Query, Scope
from upwell.ground.types.rpc import EVERY, PRIVATE, is_visible
from upwell.memory.lookups import Lookup, join_of, planned
from upwell.memory.postgres.writing import EXPIRES, NAMESPACE, PINNED, indexable
from upwell.memory.ranking.calibrate import SIZES, NullScores, usual
from upwell.memory.ranking.signals import Join, exact_keys, join_keys
from upwell.memory.ranking.terms import Corpus

WHOLE_TENANT = -1
"""The scope number for the null scores that cover all projects of a tenant."""
MAX_OVERVIEWS = 256
RECENT_SECONDS = 0.5
"""A version that the database reported is treated as current for this long."""
_VISIBLE = "(%(project)s::text IS NULL OR project IN ('', %(project)s, %(address)s, %(main)s))"
SIZES_OF_SCOPES = f"""
    SELECT no, project, memories, words, tokens, last FROM upwell.scope
    WHERE tenant = %(tenant)s AND {_VISIBLE} ORDER BY no"""
_OF_SCOPES = f"""AND scope = ANY(ARRAY(
    SELECT no FROM upwell.scope WHERE tenant = %(tenant)s AND {_VISIBLE}))"""
VERSION = Statement("SELECT version FROM upwell.tenant WHERE tenant = %(tenant)s", {})


def _holding_sql(table: str, column: str, names: str, of_scopes: str) -> str:
    return f"""
        SELECT {column}, sum(memories)::bigint FROM upwell.{table}
        WHERE tenant = %(tenant)s AND {column} = ANY(%({names})s::text[]) {of_scopes}
        GROUP BY {column}"""


def holding(project: str | None, stems: Sequence[str]) -> Statement:
    """Return the statement that counts, for each of these stems, the memories that contain it and
    are visible to a project. Without a project, all memories of the tenant are visible."""
    of_scopes = "" if project is None else _OF_SCOPES
    return Statement(
        _holding_sql("term", "stem", "stems", of_scopes), {**owners(project), "stems": list(stems)}
    )


def _frequencies(of_scopes: str) -> str:
    stems, keys = (
        _holding_sql(table, column, names, of_scopes)
        for table, column, names in (("term", "stem", "stems"), ("anchor", "key", "keys"))
    )
    return f"""
        SELECT 0, '', version FROM upwell.tenant WHERE tenant = %(tenant)s
        UNION ALL SELECT 1, * FROM ({stems}) AS stems
        UNION ALL SELECT 2, * FROM ({keys}) AS keys"""


_FREQUENCIES, _FREQUENCIES_OF_SCOPES = _frequencies(""), _frequencies(_OF_SCOPES)
_NULL_SCORES = """
    SELECT scope, mean, spread FROM upwell.null_score
    WHERE tenant = %(tenant)s ORDER BY scope, words"""
_KINDS = """
    SELECT (SELECT min(expires_at) FROM upwell.memory
            WHERE tenant = %(tenant)s AND expires_at IS NOT NULL),
           EXISTS (SELECT FROM upwell.memory WHERE tenant = %(tenant)s AND pinned),
           EXISTS (SELECT FROM upwell.memory
                   WHERE tenant = %(tenant)s AND supersedes IS NOT NULL)"""


class PostgresFilter(Struct, frozen=True):
    """Selects the memories that a search may return. They are in one of the `namespaces` (in any,
    if `namespaces` is empty) and have not expired at `now`. Standing rules are excluded, because
    they are shown in another way. `condition` is the SQL condition on a row `m`, or empty if every
    memory of the tenant meets it."""

    namespaces: tuple[str, ...]
    now: float
    condition: str = ""

    @property
    def values(self) -> dict[str, object]:
        return {**namespace_values(self.namespaces), "now": self.now}

    def joined(self, other: str) -> str:
        """Return the SQL that joins the table `other` with the memories that pass the filter."""
        if not self.condition:
            return ""
        # The offset prevents the planner from reading all memories.
        return f"""CROSS JOIN LATERAL (
            SELECT FROM upwell.memory m WHERE m.tenant = %(tenant)s AND m.n = {other}.n
                AND {self.condition} OFFSET 0) AS kept"""

    def passes(self, row: Sequence[Any]) -> bool:
        if row[PINNED] or not is_visible(row[NAMESPACE], self.namespaces):
            return False
        return row[EXPIRES] is None or row[EXPIRES] > self.now


def within(column: str, patterns: Sequence[str]) -> str:
    """Return the SQL condition that is true if the namespace in `column` matches one of the
    patterns. It is the counterpart of `is_visible()`. Its values come from `namespace_values()`."""
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
    below = [pattern[:-1] for pattern in patterns if pattern.endswith("/*")]
    return {"namespaces": list(patterns), "below": below}


def filter_of(
    namespaces: tuple[str, ...], now: float, *, expired: bool = True, pinned: bool = True
) -> PostgresFilter:
    conditions = [within("m.namespace", namespaces)] if namespaces else []
    conditions += ["(m.expires_at IS NULL OR m.expires_at > %(now)s)"] if expired else []
    conditions += ["NOT m.pinned"] if pinned else []
    return PostgresFilter(namespaces, now, " AND ".join(conditions))


class TermCounts(Struct, frozen=True):
    """The frequencies of a query's words and keys in its scope. `mean_tokens` is the mean length of
    the scope's memories, including the words in their column `extra`. `supersedes` is False if no
    memory of the tenant supersedes another. `has_file` is False if no memory is about the query's
    file."""

    corpus: Corpus
    mean_tokens: float
    holding: Mapping[str, int]
    joins: Mapping[str, Join]
    null_scores: NullScores
    keep: PostgresFilter
    supersedes: bool = True
    has_file: bool = True

    def lookup(self, text: str, word_of: Mapping[str, str]) -> Lookup:
        holding = {stem: self.holding.get(stem, 0) for stem in word_of}
        return planned(text, word_of, holding, self.corpus)


class Overview(Struct, frozen=True):
    """The counts that do not depend on the query, at one version of the memories."""

    version: int
    corpus: Corpus
    mean_tokens: float
    null_scores: NullScores
    first_expiry: float | None
    has_pinned: bool
    has_superseding: bool


class Overviews:
    """Caches overviews, and for each tenant the last version that the database reported."""

    def __init__(self) -> None:
        self._of: OrderedDict[tuple[str, str | None], Overview] = OrderedDict()
        self._versions: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def note(self, tenant: str, version: int) -> None:
        """Record a version that the database has just reported."""
        self._versions[tenant] = (version, time.monotonic())
        self._versions.move_to_end(tenant)
        if len(self._versions) > MAX_OVERVIEWS:
            self._versions.popitem(last=False)

    def forget(self, tenant: str) -> None:
        """Forget the version, after this process has changed the tenant's memories."""
        self._versions.pop(tenant, None)

    def version(self, tenant: str) -> int | None:
        """Return a tenant's version if the database reported it within `RECENT_SECONDS`."""
        version, at = self._versions.get(tenant, (None, 0.0))
        return version if time.monotonic() - at < RECENT_SECONDS else None

    def known(self, scope: Scope, version: int) -> Overview | None:
        """Return the cached overview of a scope at this version, or None."""
        key = (scope.tenant, scope.project)
        overview = self._of.get(key)
        if overview is None or overview.version != version:
            return None
        self._of.move_to_end(key)
        return overview

    async def read(self, postgres: Postgres, scope: Scope, version: int) -> Overview:
        """Read the overview of a scope at this version or a later one. Raises StoreError if the
        database failed."""
        sizes, measured, kinds = await postgres.ask(
            scope.tenant, sizes_of(scope), Statement(_NULL_SCORES, {}), Statement(_KINDS, {})
        )
        corpus, mean_tokens = corpus_of(sizes)
        key = key_of(scope, sizes)
        own = [figures for no, *figures in measured if no == key]
        complete = len(own) == len(SIZES)
        null_scores = NullScores(*zip(*own, strict=True)) if complete else usual(corpus)
        overview = Overview(version, corpus, mean_tokens, null_scores, *kinds[0])
        self._of[scope.tenant, scope.project] = overview
        if len(self._of) > MAX_OVERVIEWS:
            self._of.popitem(last=False)
        return overview


async def counted(
    postgres: Postgres,
    overviews: Overviews,
    query: Query,
    words: Iterable[Mapping[str, str]],
    now: float,
) -> TermCounts:
    """Count the words, files and symbols of a query in its scope. Raises StoreError if the database
    failed."""
    scope = query.scope
    keys = join_keys(query.paths, query.symbols, scope.project)
    keys_of_file = {indexable(key) for key in exact_keys(query.file)}
    values = {
        **owners(scope.project),
        "stems": sorted(set().union(*words)),
        "keys": sorted(keys_of_file.union(map(indexable, keys))),
    }
    sql = _FREQUENCIES if scope.project is None else _FREQUENCIES_OF_SCOPES
    (rows,) = await postgres.ask(scope.tenant, Statement(sql, values))
    version = next((int(count) for kind, _, count in rows if kind == 0), 0)
    overviews.note(scope.tenant, version)
    overview = overviews.known(scope, version) or await overviews.read(postgres, scope, version)
    first_expiry = overview.first_expiry
    joined = {key: int(count) for kind, key, count in rows if kind == 2}
    return TermCounts(
        corpus=overview.corpus,
        mean_tokens=overview.mean_tokens,
        holding={stem: int(count) for kind, stem, count in rows if kind == 1},
        joins={
            key: join_of(join_key, joined[indexable(key)])
            for key, join_key in keys.items()
            if indexable(key) in joined
        },
        null_scores=overview.null_scores,
        keep=filter_of(
            scope.namespaces,
            now,
            expired=first_expiry is not None and first_expiry <= now,
            pinned=overview.has_pinned,
        ),
        supersedes=overview.has_superseding,
        has_file=not query.file or not keys_of_file.isdisjoint(joined),
    )


def sizes_of(scope: Scope) -> Statement:
    return Statement(SIZES_OF_SCOPES, owners(scope.project))


def owners(project: str | None) -> dict[str, object]:
    """Return the names under which a project's data is stored, as SQL values."""
    path, address, main = owners_of(project) if project else (project, project, project)
    return {"project": path, "address": address, "main": main}


def corpus_of(rows: Rows) -> tuple[Corpus, float]:
    """Build the corpus from the rows of `sizes_of`. Also returns the mean length of its
    memories."""
    memories, words, tokens = (sum(row[index] for row in rows) for index in (2, 3, 4))
    corpus = Corpus(tuple(row[0] for row in rows), int(memories), int(words))
    return corpus, float(tokens / memories) if memories else 1.0


def key_of(scope: Scope, sizes: Rows) -> int | None:
    """Return the scope number under which the null scores for `scope` are stored. It is that of the
    project, or that of the global scope if the project has no scope yet. Without a project, it is
    `WHOLE_TENANT`. Returns None if no scope is visible."""
    if not sizes:
        return None
    numbers = {row[1]: int(row[0]) for row in sizes}
    if scope.project is None:
        return WHOLE_TENANT
    names = (*owners_of(scope.project), "")
    return next((numbers[name] for name in names if name in numbers), None)
