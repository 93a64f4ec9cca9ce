"""What in the memory plainly bears on an event, found with nothing but SQLite and the words of the
index: a part of what surfacing would find, for `hook/cold.py`.
"""

import json
import math
import os
import re
import sqlite3
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from upwell.hook.stop_words import STOP_WORDS
from upwell.memory.everyday import EVERYDAY_WORDS

Payload = Mapping[str, object]
Sure = tuple[int, float]
"""The number of a memory, and how sure it is that it bears on the event."""

FILE_KEYS = ("file_path", "filePath", "path", "absolute_path", "target_file")
STATES, FEW = frozenset({"down", "off", "out"}), 2
"""Stop words that count beside so few other words, as in `memory/terms.py`."""
MIN_WORDS = 3
"""Shorter messages without a question are not looked at (seed 003)."""
MAX_WORDS = 12
MAX_HOLDING = 400
MAX_ABOUT = 8
MAX_FILES = 3
LEAST_MEMORIES = 500
CLEAR = {2: 0.75, 3: 0.6, 4: 0.5}
"""How many telling words a memory must share with a prompt, and what share of the prompt's rarity
they must make up. Set by hand, well inside of what the daemon says."""
_WORD = re.compile(r"[^\W_]+")
TOKENIZER = "porter unicode61 remove_diacritics 2"


def by_words(db: sqlite3.Connection, payload: Payload) -> list[Sure]:
    """Memories that hold most of what a prompt asks, the surest first."""
    prompt, scopes = payload.get("prompt"), _scopes(db, payload)
    if not isinstance(prompt, str) or not scopes:
        return []
    asked = [_folded(word) for word in _WORD.findall(prompt[:500])]
    if prompt.lstrip().startswith("/") or (len(asked) < MIN_WORDS and "?" not in prompt):
        return []
    by_stem = {stem: word for word, stem in _stems(_telling(asked))}
    rarity, common = _rarity(db, list(by_stem), scopes)
    mass = sum(rarity.values())
    matched: dict[int, list[float]] = {}
    for stem, word in by_stem.items():
        if stem in common or word in EVERYDAY_WORDS:
            continue
        for n in _holding(db, word, scopes):
            matched.setdefault(n, []).append(rarity[stem])
    sure = [
        (n, sum(parts) / mass)
        for n, parts in matched.items()
        if sum(parts) >= CLEAR.get(min(len(parts), max(CLEAR)), 2.0) * mass
    ]
    return sorted(sure, key=lambda one: (-one[1], -one[0]))


def about_file(db: sqlite3.Connection, payload: Payload) -> list[Sure]:
    """Memories about exactly the file that is read, and about few others."""
    path, scopes = _file(payload), _scopes(db, payload)
    root = _root(_folder(payload))
    known = path.removeprefix(root + "/").lower() if root else ""
    if not scopes or not known or known.startswith("/") or "/" not in known:
        return []
    marks = ",".join("?" * len(scopes))
    rows = db.execute(
        "SELECT a.n FROM anchor k JOIN about a ON a.anchor = k.no "
        f"WHERE k.key = ? AND k.scope IN ({marks}) AND k.memories <= ? ORDER BY a.n DESC",
        (f"f:{known}", *scopes, MAX_ABOUT),
    ).fetchall()
    files = (
        "SELECT count(*) FROM about a JOIN anchor k ON k.no = a.anchor "
        "WHERE a.n = ? AND k.key LIKE 'f:%/%'"
    )
    return [(n, 0.9) for (n,) in rows if db.execute(files, (n,)).fetchone()[0] <= MAX_FILES]


def _telling(asked: Sequence[str]) -> list[str]:
    """The words that say something: no stop words, but for states where few others are left."""
    words = [word for word in dict.fromkeys(asked) if len(word) > 1]
    said = [word for word in words if word not in STOP_WORDS]
    if 0 < len(said) <= FEW:
        said = [word for word in words if word in said or word in STATES]
    return said[:MAX_WORDS]


def _folded(word: str) -> str:
    """As the index folds: lower case, without accents."""
    if word.isascii():
        return word.lower()
    decomposed = unicodedata.normalize("NFKD", word.casefold())
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def _rarity(
    db: sqlite3.Connection, stems: list[str], scopes: list[int]
) -> tuple[dict[str, float], set[str]]:
    """The idf of each stem in these scopes, and those that too many memories hold."""
    marks, places = ",".join("?" * len(stems)), ",".join("?" * len(scopes))
    count = db.execute(f"SELECT sum(memories) FROM scope WHERE no IN ({places})", scopes).fetchone()
    size = max(LEAST_MEMORIES, count[0] or 0)
    rows = db.execute(
        f"SELECT stem, sum(memories) FROM term WHERE stem IN ({marks}) AND scope IN ({places}) "
        "GROUP BY stem",
        (*stems, *scopes),
    )
    held = dict.fromkeys(stems, 0) | {stem: int(number) for stem, number in rows}
    rarity = {stem: math.log(1 + (size - n + 0.5) / (n + 0.5)) for stem, n in held.items()}
    return rarity, {stem for stem, n in held.items() if n > MAX_HOLDING}


def _stems(found: Sequence[str]) -> list[tuple[str, str]]:
    """Each word with its stem, by the index's own tokenizer."""
    if not found:
        return []
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(f"CREATE VIRTUAL TABLE scratch USING fts5 (t, tokenize = '{TOKENIZER}')")
        db.execute("CREATE VIRTUAL TABLE seen USING fts5vocab (scratch, instance)")
        db.execute("INSERT INTO scratch VALUES (?)", (" ".join(found),))
        stems = [row[0] for row in db.execute("SELECT term FROM seen ORDER BY offset")]
    return list(zip(found, stems, strict=True)) if len(stems) == len(found) else []


def _holding(db: sqlite3.Connection, word: str, scopes: list[int]) -> list[int]:
    """The memories that hold a word."""
    query = "SELECT rowid FROM words WHERE words MATCH ? AND rowid >= ? AND rowid < ? LIMIT ?"
    found: list[int] = []
    for low, high in _ranges(scopes):
        found += [row[0] for row in db.execute(query, (f'"{word}"', low, high, MAX_HOLDING))]
    return found


def _scopes(db: sqlite3.Connection, payload: Payload) -> list[int]:
    cwd = _folder(payload)
    if not cwd:
        return []
    rows = db.execute(
        "SELECT no FROM scope WHERE tenant = 'default' AND project IN ('', ?)",
        (_root(cwd) or cwd,),
    )
    return sorted(row[0] for row in rows)


def _ranges(scopes: Sequence[int]) -> Iterator[tuple[int, int]]:
    for number in scopes:
        yield number << 34, (number + 1) << 34


def _root(folder: str) -> str:
    """The repository that a folder lies in; "" when it lies in none."""
    while folder and folder != "/":
        if os.path.exists(os.path.join(folder, ".git")):
            return folder
        folder = os.path.dirname(folder)
    return ""


def _folder(payload: Payload) -> str:
    cwd, roots = payload.get("cwd"), payload.get("workspace_roots")
    if not isinstance(cwd, str) and isinstance(roots, list) and roots:
        cwd = roots[0]
    return os.path.normpath(cwd) if isinstance(cwd, str) and cwd.startswith("/") else ""


def _file(payload: Payload) -> str:
    args = payload.get("tool_input") or payload.get("toolArgs") or payload.get("args")
    args = json.loads(args) if isinstance(args, str) else args
    if not isinstance(args, dict):
        return ""
    for key in FILE_KEYS:
        value = args.get(key)
        if isinstance(value, str) and value:
            return os.path.normpath(os.path.join(_folder(payload), value))
    return ""
