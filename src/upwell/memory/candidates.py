"""Finding: which memories a query could mean, before any of them is looked at closely."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from upwell.ground.text.anchors import (
    COMMON_STEMS,
    DATA_EXTENSIONS,
    PROJECT_FILES,
    file_stem,
    path_parts,
    relative_to,
    symbol_keys,
)
from upwell.memory.query import Corpus, Reading
from upwell.memory.rows import ranges, scope_of
from upwell.memory.terms import sound

PER_TEXT = 40
FEW_CLAUSES = 3
PER_ANCHOR = 60
MAX_JOINED = 160
"""Of a file or name that many memories share only the newest are looked at."""

FULL_PATH, PATH_TAIL, FILE_NAME, PATTERN, STEM, SYMBOL = 1.0, 0.8, 0.5, 0.5, 0.35, 1.0
"""How much a join is worth by what was equal: the whole path, its last two parts, the file's
name, its stem (a test and what it tests), a symbol."""
EVERYWHERE = 0.3
"""What is left of a join on a file that every project has: a README, a manifest, a licence, and
what begins with a dot."""


@dataclass(frozen=True, slots=True)
class Join:
    """An exact match of a file or symbol: `strength` by what was equal, `holding` memories that
    share it, `name` the words that would name it in a text."""

    strength: float
    holding: int
    name: str
    symbol: bool


@dataclass(frozen=True, slots=True)
class Filter:
    """What the search itself must respect, beyond scope: namespaces, and the time of expiry; as a
    `condition` on a row `m` of the memories, with its `values`. Made by `keeping`."""

    namespaces: tuple[str, ...]
    now: float
    condition: str
    values: tuple[object, ...]

    def joined(self, n: str) -> str:
        """What joins the memory whose number is `n`, where something of it must be known."""
        return f"JOIN memory m ON m.n = {n}" if self.condition else ""

    @property
    def also(self) -> str:
        return f"AND {self.condition}" if self.condition else ""


def keeping(db: sqlite3.Connection, namespaces: tuple[str, ...] = (), now: float = 0.0) -> Filter:
    """The filter that keeps out other namespaces, what is expired and standing rules, which have
    a channel of their own; it asks only for what there is."""
    conditions: list[str] = []
    values: list[object] = []
    if namespaces:
        conditions.append(f"m.namespace IN ({','.join('?' * len(namespaces))})")
        values += namespaces
    expired = "SELECT 1 FROM memory WHERE expires_at <= ? LIMIT 1"
    if db.execute(expired, (now,)).fetchone():
        conditions.append("(m.expires_at IS NULL OR m.expires_at > ?)")
        values.append(now)
    if db.execute("SELECT 1 FROM memory WHERE pinned LIMIT 1").fetchone():
        conditions.append("NOT m.pinned")
    return Filter(namespaces, now, " AND ".join(conditions), tuple(values))


def by_words(
    db: sqlite3.Connection, reading: Reading, within: Corpus, keep: Filter, limit: int = PER_TEXT
) -> list[int]:
    """Numbers of the memories that match best, best first.

    By the index's own BM25 where few words are looked up, since many memories then hold the same
    ones; else by the rarity of the words that each holds, which finds the same ones and costs a
    third: BM25 looks the length of every memory up.
    """
    if not reading.clauses:
        return []
    if len(reading.clauses) > FEW_CLAUSES:
        return _by_rarity(db, reading, within, keep)[:limit]
    order = "w.rowid DESC" if reading.newest_only else "w.rank"
    sql = _match_sql(keep, "w.rank, w.rowid", f"ORDER BY {order} LIMIT {limit:d}")
    found: list[tuple[float, int]] = []
    for span in ranges(within.scopes):
        found += db.execute(sql, (reading.match, *span, *keep.values)).fetchall()
    return [n for _, n in sorted(found)[:limit]]


def _by_rarity(db: sqlite3.Connection, reading: Reading, within: Corpus, keep: Filter) -> list[int]:
    sql = _match_sql(keep, "w.rowid")
    held: dict[int, float] = {}
    for clause in reading.clauses:
        rarity = sum(reading.idf[stem] for stem in clause.stems)
        for span in ranges(within.scopes):
            for (n,) in db.execute(sql, (clause.expression, *span, *keep.values)):
                held[n] = held.get(n, 0.0) + rarity
    return [n for _, n in sorted(((rarity, n) for n, rarity in held.items()), reverse=True)]


def _match_sql(keep: Filter, columns: str, rest: str = "") -> str:
    """The statement that finds what matches an expression in a span."""
    return (
        f"SELECT {columns} FROM words w {keep.joined('w.rowid')} "
        f"WHERE w.words MATCH ? AND w.rowid BETWEEN ? AND ? {keep.also} {rest}"
    )


def wanted_joins(
    db: sqlite3.Connection,
    paths: Sequence[str],
    symbols: Sequence[str],
    within: Corpus,
    project: str | None,
) -> dict[str, Join]:
    """The keys under which memories about these files and symbols stand, of those that exist."""
    wanted: dict[str, Join] = {}
    for path in map(sound, paths):
        name = file_stem(path)
        for key, strength in path_forms(path, project):
            _want(wanted, key, Join(strength, 0, name, symbol=False))
    for key in symbol_keys(map(sound, symbols)):
        _want(wanted, f"y:{key}", Join(SYMBOL, 0, key, symbol=True))
    holding = _holding(db, tuple(wanted), within)
    return {key: replace(wanted[key], holding=count) for key, count in holding.items()}


def by_anchors(
    db: sqlite3.Connection, joins: Mapping[str, Join], within: Corpus, keep: Filter
) -> list[int]:
    """The newest memories that stand under these keys, strictest keys first."""
    found: dict[int, None] = {}
    for key in sorted(joins, key=lambda key: (-joins[key].strength, joins[key].holding)):
        for scope in within.scopes:
            found.update(dict.fromkeys(_about(db, key, scope, keep)))
        if len(found) >= MAX_JOINED:
            break
    return list(found)[:MAX_JOINED]


def path_forms(path: str, project: str | None) -> list[tuple[str, float]]:
    """The keys under which memories about `path` may stand, and what each is worth.

    A path from inside the project is whole; of any other one it is not known where the
    repository begins, so each of its tails of two parts or more may be the whole path. Of a
    pattern (`**/*name*`) only what it spells out of the file's name counts. A file of data shares
    no stem with code: `nothere.txt` says nothing of `nothere.py`.
    """
    if any(sign in path for sign in "*?"):
        return _pattern_forms(path)
    known = relative_to(path, project).lower()
    parts = path_parts(known)
    if not parts:
        return []
    stem = file_stem(path)
    rooted = path.startswith(("/", "~"))
    inside = not rooted or known != "/".join(path_parts(path.lower()))
    forms = [(f"f:{known}", FULL_PATH)]
    if not inside:
        forms += [(f"f:{'/'.join(parts[i:])}", FULL_PATH) for i in range(1, len(parts) - 1)]
    if len(parts) > 1:
        forms += [(f"s:{'/'.join(parts[-2:])}", PATH_TAIL)]
    if stem not in COMMON_STEMS:
        forms += [(f"f:{parts[-1]}", FILE_NAME), (f"n:{parts[-1]}", FILE_NAME)]
        if parts[-1].rpartition(".")[2] not in DATA_EXTENSIONS:
            forms.append((f"t:{stem}", STEM))
    if stem in PROJECT_FILES or parts[-1].startswith("."):
        return [(key, worth * EVERYWHERE) for key, worth in forms]
    return forms


def _pattern_forms(path: str) -> list[tuple[str, float]]:
    last = path_parts(path.lower())[-1:]
    name = last[0].replace("*", "").replace("?", "") if last else ""
    if len(name) < 3 or name.startswith(".") or file_stem(name) in COMMON_STEMS | PROJECT_FILES:
        return []
    exact = [(f"n:{name}", FILE_NAME)] if "*" not in last[0] else []
    return [*exact, (f"t:{file_stem(name)}", PATTERN)]


def neighbours(numbers: Iterable[int]) -> set[int]:
    """The numbers before and after these, in the same scope."""
    near: set[int] = set()
    for n in numbers:
        near |= {other for other in (n - 1, n + 1) if scope_of(other) == scope_of(n)}
    return near


def _want(wanted: dict[str, Join], key: str, join: Join) -> None:
    if key not in wanted or wanted[key].strength < join.strength:
        wanted[key] = join


def _holding(db: sqlite3.Connection, keys: Sequence[str], within: Corpus) -> dict[str, int]:
    if not keys or not within.scopes:
        return {}
    key_marks, scope_marks = (",".join("?" * len(part)) for part in (keys, within.scopes))
    rows = db.execute(
        f"SELECT key, sum(memories) FROM anchor WHERE key IN ({key_marks}) "
        f"AND scope IN ({scope_marks}) GROUP BY key",
        (*keys, *within.scopes),
    )
    return {key: int(count) for key, count in rows}


def _about(db: sqlite3.Connection, key: str, scope: int, keep: Filter) -> list[int]:
    rows = db.execute(
        "SELECT a.n FROM anchor k JOIN about a ON a.anchor = k.no "
        f"{keep.joined('a.n')} WHERE k.key = ? AND k.scope = ? {keep.also} "
        "ORDER BY a.n DESC LIMIT ?",
        (key, scope, *keep.values, PER_ANCHOR),
    )
    return [row[0] for row in rows]
