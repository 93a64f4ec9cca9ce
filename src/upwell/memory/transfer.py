"""Bringing memories in, and taking them out.

Markdown becomes a live source (`memory/sources.py`); JSON lines and another `stm.json` become
memories. Importing the same again changes nothing. A line is the import shape of `memory/shape.py`;
what else there is to know of a memory stands under `upwell`, so that an export comes back whole.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from upwell.ground.errors import StoreError, UsageError
from upwell.ground.types import Memory, Provenance, Trust
from upwell.memory.documents import Progress
from upwell.memory.library import Library
from upwell.memory.rows import check
from upwell.memory.shape import memory_of, moment

FORMATS = ("auto", "markdown", "stm", "jsonl")
BATCH = 1_000
"""Memories that are kept all or none; an error names what was kept before it."""
PAGE = 5_000
_OWN = "upwell"
_MARKDOWN = (".md", ".markdown")
_LINES = (".jsonl", ".ndjson")


@dataclass(frozen=True, slots=True)
class Copied:
    """What became of a file: how many memories were kept, and how often which rule masked a
    secret."""

    kept: int
    redacted: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Item:
    """A memory of a file, `where` it stands there, and the byte where it ends."""

    where: str
    memory: Memory
    end: int


def format_of(path: Path, named: str = "auto") -> str:
    """The format to import a path in: the one that is named, else what its name says.

    Raises:
        UsageError: it says nothing.
    """
    if named not in FORMATS:
        raise UsageError(f"--format {named!r} is not a format", hint=", ".join(FORMATS))
    suffix = path.suffix.lower()
    if named != "auto":
        return named
    if path.is_dir() or suffix in _MARKDOWN:
        return "markdown"
    if suffix in _LINES:
        return "jsonl"
    if suffix == ".json":
        return "stm"
    raise UsageError(
        f"{path}: what it holds cannot be told from its name",
        hint="--format markdown, stm or jsonl",
    )


async def bring_in(library: Library, path: Path, form: str, progress: Progress) -> Copied:
    """Keep the memories of a file of JSON lines, or of an `stm.json`, batch by batch.

    Raises:
        UsageError: it cannot be read, or a memory in it has another shape; the message names file
            and line, the hint what was kept.
        StoreError: nothing of the last batch was kept.
    """
    if not path.is_file():
        raise UsageError(f"cannot import {path}: it is no file")
    size = max(1, path.stat().st_size)
    kept, redacted = 0, Counter[str]()
    batch: list[_Item] = []
    items = _notes(path) if form == "stm" else _lines(path)
    while True:
        try:
            item = next(items, None)
        except UsageError as error:
            raise UsageError(error.message, hint=_kept_so_far(kept, error.hint)) from error
        if item:
            batch.append(item)
        if batch and (item is None or len(batch) >= BATCH):
            redacted.update(await _keep(library, batch, kept))
            kept += len(batch)
            progress(batch[-1].end, size)
            batch = []
        if item is None:
            return Copied(kept, redacted)


async def _keep(library: Library, batch: list[_Item], kept: int) -> list[str]:
    """Keep a batch, all or none. Returns the rules that masked something."""
    try:
        memories = [await _as_before(library, item.memory) for item in batch]
        added = await library.add_many(memories)
    except StoreError as error:
        error.hint = _kept_so_far(kept, error.hint)
        raise
    return [rule for one in added for rule in one.redacted]


async def _as_before(library: Library, memory: Memory) -> Memory:
    """A memory that comes again keeps the times that the file does not say."""
    before = await library.store.get(memory.id)
    if before is None or before.text != memory.text:
        return memory
    return replace(
        memory,
        created_at=before.created_at if memory.created_at is None else memory.created_at,
        updated_at=before.updated_at if memory.updated_at is None else memory.updated_at,
        viewed_at=before.viewed_at if memory.viewed_at is None else memory.viewed_at,
    )


def _kept_so_far(kept: int, hint: str) -> str:
    said = f"{kept} memories before it were kept" if kept else "nothing was kept"
    return f"{hint}; {said}" if hint else said


def _lines(path: Path) -> Iterator[_Item]:
    end = 0
    for number, raw in enumerate(_rows(path), 1):
        end += len(raw)
        text = raw.removeprefix(b"\xef\xbb\xbf").strip()
        if text:
            yield _read(f"{path}:{number}", end, partial(_from_text, text))


def _notes(path: Path) -> Iterator[_Item]:
    data = b"".join(_rows(path))
    try:
        notes = _parsed(data)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}") from error
    if not isinstance(notes, list):
        raise UsageError(f"{path}: an stm.json is an array of notes")
    for number, raw in enumerate(notes, 1):
        end = len(data) * number // len(notes)
        yield _read(f"{path}: note {number}", end, partial(_from_note, raw))


def _read(where: str, end: int, read: Callable[[], Memory]) -> _Item:
    try:
        return _Item(where, read(), end)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", hint=error.hint) from error


def _rows(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from file
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or '').lower()}") from error


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise UsageError(f"it is not UTF-8 (byte {error.start})") from error
    except RecursionError as error:
        raise UsageError("it is nested too deeply") from error
    except ValueError as error:
        raise UsageError(f"it is not JSON: {error}") from error


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON number")


def _from_text(text: bytes) -> Memory:
    raw = _parsed(text)
    memory = memory_of(raw, trust=Trust.IMPORTED)
    return _named(_restored(memory, raw.get(_OWN)))


def _from_note(raw: object) -> Memory:
    if not isinstance(raw, Mapping) or not isinstance(raw.get("content"), str):
        raise UsageError("a note has an id and a content")
    shape = {"id": raw.get("id"), "text": raw["content"], "created_at": raw.get("created_at")}
    memory = memory_of(shape, trust=Trust.IMPORTED)
    return _named(replace(memory, viewed_at=moment(raw.get("viewed_at"))))


def _named(memory: Memory) -> Memory:
    """One that has no id gets the same each time it is imported."""
    check(memory)
    if memory.id:
        return memory
    said = json.dumps([memory.text, memory.namespace, memory.project, memory.source])
    return replace(memory, id="i" + hashlib.sha256(said.encode()).hexdigest()[:19])


async def exported(library: Library) -> AsyncIterator[Memory]:
    """Every memory that is kept, of every project, newest first. What stands in files is not: the
    files are the truth."""
    offset = 0
    while page := await library.list(limit=PAGE, offset=offset):
        for memory in page:
            yield memory
        offset += len(page)


def to_line(memory: Memory) -> str:
    """A memory as a line of JSON that `bring_in` takes back whole."""
    origin = memory.provenance
    own = {
        "trust": str(memory.trust),
        "pinned": memory.pinned,
        "supersedes": memory.supersedes,
        "lines": memory.lines,
        "expires_at": memory.expires_at,
        "updated_at": memory.updated_at,
        "viewed_at": memory.viewed_at,
        "provenance": {one.name: getattr(origin, one.name) for one in fields(origin)},
    }
    shape = {
        "id": memory.id,
        "text": memory.text,
        "namespace": memory.namespace,
        "tags": memory.tags,
        "paths": memory.paths,
        "symbols": memory.symbols,
        "project": memory.project,
        "source": memory.source,
        "created_at": memory.created_at,
    }
    return json.dumps({**shape, _OWN: own})


def to_markdown(memory: Memory) -> str:
    """A memory for people to read."""
    about = [
        f"- {name}: {value}"
        for name, value in (
            ("namespace", memory.namespace),
            ("project", memory.project),
            ("tags", ", ".join(memory.tags)),
            ("files", ", ".join(memory.paths)),
            ("source", memory.source),
            ("pinned", "yes" if memory.pinned else ""),
            ("supersedes", memory.supersedes),
            ("until", _day(memory.expires_at)),
        )
        if value
    ]
    return "\n".join((f"## {memory.id}", "", memory.text.strip(), "", *about, ""))


def _day(at: float | None) -> str:
    return "" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def _restored(memory: Memory, own: object) -> Memory:
    """With what an export of ours says besides the import shape."""
    if own is None:
        return memory
    if not isinstance(own, Mapping):
        raise UsageError(f"{_OWN} must be an object")
    try:
        return replace(
            memory,
            trust=Trust(own.get("trust", memory.trust)),
            pinned=own.get("pinned") is True,
            supersedes=_text_or_none(own.get("supersedes")),
            lines=_span(own.get("lines")),
            expires_at=_time(own.get("expires_at")),
            updated_at=_time(own.get("updated_at")),
            viewed_at=_time(own.get("viewed_at")),
            provenance=Provenance(**own.get("provenance", {})),
        )
    except (TypeError, ValueError) as error:
        raise UsageError(f"{_OWN} is not as an export writes it: {error}") from error


def _text_or_none(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise ValueError(f"{value!a:.60} is no id")


def _span(value: object) -> tuple[int, int] | None:
    if value is None:
        return None
    if isinstance(value, list) and len(value) == 2 and all(type(line) is int for line in value):
        return value[0], value[1]
    raise ValueError(f"{value!a:.60} are no lines")


def _time(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    raise ValueError(f"{value!a:.60} is no time")
