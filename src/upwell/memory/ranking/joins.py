"""Exact joins: the keys under which memories about a file or a symbol are stored and looked up.

A memory is stored under up to four keys for each of its files: the whole path (`f:`), the path's
last two parts (`s:`), the file's name (`n:`) and its stem (`t:`). It is also stored under the whole
name and the last part of each symbol (`y:`).
"""

from collections.abc import Iterable

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
from upwell.memory.ranking.terms import sound

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
