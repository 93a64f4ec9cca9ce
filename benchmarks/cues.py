"""Turns the cues of the development sets into queries with a simple reader, so that a benchmark
measures only the memory. The product's own reader is in `upwell.surface`.
"""

import re
from collections.abc import Iterator
from typing import Any

from upwell.ground.text.anchors import paths_in, symbols_in
from upwell.ground.text.words import path_words
from upwell.ground.types.memory import Query, Scope

PATH_KEYS = ("file_path", "path", "pattern", "filePath")
SKIPPED_KEYS = ("description", "output_mode", "owner", "repo", "url")
_NOISE = re.compile(
    r"\b(?:python3?|pytest|cargo|go|git|npx?|npm|rg|grep|cat|sed|head|tail|test|log|blame|run|vitest|"
    r"oneline|nocapture|make|uv|no-header)\b|(?<!\w)-{1,2}[\w-]+|\brepo:\S+|[|'\"\\]"
)


def strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, part in value.items():
            if name not in SKIPPED_KEYS:
                yield from strings(part, name)
    elif isinstance(value, list):
        for part in value:
            yield from strings(part, key)


def query_of(cue: dict[str, Any], *, project: str | None = None, limit: int = 10) -> Query:
    """The query of a cue: words, files and symbols."""
    scope = Scope(project=project)
    if cue["door"] == "prompt":
        text = cue["prompt"]
        return Query(
            texts=(text,), paths=paths_in(text), symbols=symbols_in(text), scope=scope, limit=limit
        )
    words: list[str] = []
    paths: dict[str, None] = {}
    symbols: dict[str, None] = {}
    for key, value in strings(cue.get("args") or {}):
        home = f"/home/dev/{cue['store']}"
        if key in PATH_KEYS and " " not in value and ("/" in value or "*" in value or "." in value):
            if cue["tool"] in ("Grep", "LS"):
                continue
            paths.setdefault(value)
            words += path_words(value.removeprefix(home).replace("*", ""))[-4:]
            continue
        bare = _NOISE.sub(" ", value)
        result = paths_in(bare)
        for path in result:
            paths.setdefault(path)
            bare = bare.replace(path, " ")
            words += path_words(path)[-4:]
        for symbol in symbols_in(bare):
            symbols.setdefault(symbol)
        words.append(bare)
    text = " ".join(dict.fromkeys(words)).strip()
    return Query(
        texts=(text,) if text else (),
        paths=tuple(paths),
        symbols=tuple(symbols),
        scope=scope,
        limit=limit,
    )
