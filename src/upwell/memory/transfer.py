"""Import and export memories.

Markdown becomes a live source: it is not copied, and upwell reads it again when it changes
(`memory/sources.py`). JSON lines are copied into the store, and the notes from another `stm.json`
are copied into the one in use. Importing the same file again creates no duplicates. A JSON line is
in the import format of `memory/records.py`, with the memory's other fields under `upwell`, so an
export can be imported without loss.
"""

import asyncio
import hashlib
import json
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field
from msgspec.structs import fields, replace

from upwell.ground.errors import StoreError, UsageError
from upwell.ground.project import repository_of
from upwell.ground.text.format import counted
from upwell.ground.types.memory import Memory, Provenance, Trust
from upwell.memory.documents.recall import Documents, Progress
from upwell.memory.documents.scan import Problem
from upwell.memory.library import Library
from upwell.memory.notes.file import Origin
from upwell.memory.notes.reading import read_notes
from upwell.memory.notes.stm import ShortTerm
from upwell.memory.records import check, check_pin, memory_of
from upwell.memory.sources import Source, Sources, source_at


class Imported(Struct, frozen=True, kw_only=True):
    """The outcome of an import.

    `files`, `chunks` and `problems` describe a live source. `stored`, `redacted` and `rules`
    describe a copy: the number of memories, the number of memories in which each masking rule
    masked secrets, and the number of standing rules.
    """

    path: str
    format: str
    files: int = 0
    chunks: int = 0
    problems: tuple[Problem, ...] = ()
    stored: int = 0
    redacted: Mapping[str, int] = field(default_factory=dict)
    rules: int = 0


class Imports:
    """Imports files and folders, and removes live sources."""

    def __init__(
        self, library: Library, documents: Documents, sources: Sources, notes: ShortTerm
    ) -> None:
        self._library = library
        self._documents = documents
        self._sources = sources
        self._notes = notes

    async def all(self) -> list[Source]:
        """The live sources."""
        return await self._sources.all()

    async def add(
        self,
        path: Path,
        folder: Path,
        format_name: str,
        progress: Progress,
        projects: Mapping[str, str] = MappingProxyType({}),
    ) -> Imported:
        """Import `path` in the format `format_name`; "auto" chooses the format by the suffix.
        Citations of Markdown files are relative to `folder`. `projects` maps the projects named in
        the file to folders on this machine.

        Raises:
            UsageError: there is nothing to import, the format is unknown, the format has no
                projects but `projects` is given, a memory is malformed, the library is full, or
                `path` is the home folder or contains it.
            StoreError: the store failed. If the file has JSON lines, its earlier batches stay
                stored, and the hint reports how many memories they contain.
        """
        if not path.exists():
            raise UsageError(f"cannot import {path}: no such file or folder", hint="check the path")
        form = format_of(path, format_name)
        if projects and form != "jsonl":
            raise UsageError(f"{path} names no projects to replace", hint="only JSON lines do")
        if form != "markdown":
            copied = (
                await asyncio.to_thread(copy_notes, self._notes, path)
                if form == "stm"
                else await copy_memories(self._library, path, progress, projects)
            )
            return Imported(
                path=str(path),
                format=form,
                stored=copied.stored,
                redacted=copied.redacted,
                rules=copied.rules,
            )
        _refuse_home(path)
        source = source_at(path, folder)
        is_known = source.path in [other.path for other in await self._sources.all()]
        await self._sources.add(source)
        try:
            state = await self._documents.refresh(progress=progress)
        except StoreError:
            if not is_known:
                await self._sources.remove(source.path)
            raise
        files, chunks = await self._documents.counts(source)
        if not (files or is_known or any(source.holds(p.path) for p in state.problems)):
            await self._sources.remove(source.path)
            raise UsageError(
                f"{path} has no Markdown files, so upwell does not watch it",
                hint="import a folder that has *.md files, or a file with --format",
            )
        return Imported(
            path=source.path,
            format=form,
            files=files,
            chunks=chunks,
            problems=tuple(problem for problem in state.problems if source.holds(problem.path)),
        )

    async def drop_source(self, path: Path) -> None:
        """Remove a live source and its memories.

        Raises:
            UsageError: the path was not imported.
        """
        for spelling in dict.fromkeys((str(path.resolve()), str(path.absolute()), str(path))):
            if await self._sources.remove(spelling):
                await self._documents.refresh()
                return
        raise UsageError(f"{path} is not imported", hint="`upwell import` lists the imports")


def _refuse_home(path: Path) -> None:
    """Raise UsageError for the home folder and its parents, because most Markdown files there are
    not notes."""
    folder = path.resolve()
    if folder == Path.home().resolve() or folder in Path.home().resolve().parents:
        raise UsageError(
            f"{path} contains all of your files, not only notes",
            hint="import the folders with notes, like `upwell import ~/notes`",
        )


FORMATS = ("auto", "markdown", "stm", "jsonl")
BATCH = 1_000
"""Memories per transaction."""
PAGE = 5_000
MAX_LINE_BYTES = 16_000_000
"""The maximum length of a line. A memory of a million characters fits, with its other fields, even
if every character is a JSON escape."""
_OWN = "upwell"
_MARKDOWN = (".md", ".markdown")
_LINES = (".jsonl", ".ndjson")


class Copied(Struct, frozen=True):
    """The outcome of copying a file. The fields are as in `Imported`."""

    stored: int
    redacted: Mapping[str, int]
    rules: int = 0


class _Item(Struct, frozen=True):
    """A memory in a file. `position` names its file and line in messages. `end` is the byte offset
    at which the line ends."""

    position: str
    memory: Memory
    end: int


def format_of(path: Path, format_name: str = "auto") -> str:
    """Return `format_name` or, if that is "auto", the format that the suffix suggests.

    Raises:
        UsageError: the format or the suffix is unknown.
    """
    if format_name not in FORMATS:
        raise UsageError(f"unknown --format {format_name!r}", hint=", ".join(FORMATS))
    suffix = path.suffix.lower()
    if format_name != "auto":
        return format_name
    if path.is_dir() or suffix in _MARKDOWN:
        return "markdown"
    if suffix in _LINES:
        return "jsonl"
    if suffix == ".json":
        return "stm"
    raise UsageError(
        f"cannot tell the format of {path} from its name",
        hint="pass --format markdown, stm or jsonl",
    )


def copy_notes(notes: ShortTerm, path: Path) -> Copied:
    """Copy the notes from another `stm.json` into the one in use. Blocks.

    Raises:
        UsageError: the file cannot be read, or a note in it is malformed; nothing was stored.
        StoreError: nothing was stored.
    """
    origin = Origin(project=repository_of(str(path.resolve().parent)), trust=Trust.IMPORTED)
    stored, fired = notes.take_over([(entry, origin) for entry in read_notes(path)])
    return Copied(len(stored), Counter(fired))


async def copy_memories(
    library: Library,
    path: Path,
    progress: Progress,
    projects: Mapping[str, str] = MappingProxyType({}),
) -> Copied:
    """Copy memories from a file of JSON lines, batch by batch. A memory gets a new project if its
    project is in `projects`, or is a folder inside one of them.

    Raises:
        UsageError: the file cannot be read, a memory in it is malformed (the message gives the file
            and line), or the library is full. The hint reports how many memories were stored.
        StoreError: a batch was not stored. Earlier batches stay stored.
    """
    if not path.is_file():
        raise UsageError(f"cannot import {path}: not a regular file", hint="name another file")
    size = max(1, path.stat().st_size)
    stored_count, rule_count, redacted = 0, 0, Counter[str]()
    batch: list[_Item] = []
    items = _lines(path)
    while True:
        try:
            item = next(items, None)
        except UsageError as error:
            raise UsageError(
                error.message, hint=_with_progress(stored_count, error.hint)
            ) from error
        if item:
            batch.append(replace(item, memory=_moved(item.memory, projects)))
        if batch and (item is None or len(batch) >= BATCH):
            redacted.update(await _store(library, batch, stored_count))
            stored_count += len(batch)
            rule_count += sum(entry.memory.pinned for entry in batch)
            progress(batch[-1].end, size)
            batch = []
        if item is None:
            return Copied(stored_count, redacted, rule_count)


async def _store(library: Library, batch: list[_Item], stored_count: int) -> list[str]:
    """Store a batch. Returns the rules that masked secrets, once for each memory."""
    try:
        memories = [await _with_earlier_times(library, item.memory) for item in batch]
        added = await library.add_many(memories)
    except (StoreError, UsageError) as error:
        error.hint = _with_progress(stored_count, error.hint)
        raise
    return [rule for result in added for rule in result.redacted]


def _moved(memory: Memory, projects: Mapping[str, str]) -> Memory:
    """Replace the memory's project, or the folder that contains it, as `projects` says. If several
    folders in `projects` contain the project, the longest path wins."""
    project = memory.project
    if not projects or project is None:
        return memory
    holding = [old for old in projects if project == old or project.startswith(f"{old}/")]
    if not holding:
        return memory
    old = max(holding, key=len)
    return replace(memory, project=projects[old] + project[len(old) :])


async def _with_earlier_times(library: Library, memory: Memory) -> Memory:
    """If the store has a memory with the same id and text, take from it the times that the file
    lacks."""
    before = await library.store.get(memory.id)
    if before is None or before.text != memory.text:
        return memory
    return replace(
        memory,
        created_at=before.created_at if memory.created_at is None else memory.created_at,
        updated_at=before.updated_at if memory.updated_at is None else memory.updated_at,
        viewed_at=before.viewed_at if memory.viewed_at is None else memory.viewed_at,
    )


def _with_progress(stored_count: int, hint: str) -> str:
    progress = (
        f"{counted(stored_count, 'earlier memory', 'earlier memories')} stored"
        if stored_count
        else "nothing was stored"
    )
    return f"{hint}; {progress}" if hint else progress


def _lines(path: Path) -> Iterator[_Item]:
    end = 0
    for number, raw in enumerate(_rows(path), 1):
        end += len(raw)
        text = raw.removeprefix(b"\xef\xbb\xbf").strip()
        if text:
            yield _read(f"{path}:{number}", end, partial(_from_text, text))


def _read(position: str, end: int, read: Callable[[], Memory]) -> _Item:
    try:
        return _Item(position, read(), end)
    except UsageError as error:
        raise UsageError(f"{position}: {error.message}", hint=error.hint) from error


def _rows(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            for number in count(1):
                line = file.readline(MAX_LINE_BYTES + 1)
                if not line:
                    return
                if len(line) > MAX_LINE_BYTES:
                    raise UsageError(
                        f"{path}:{number}: the line has over {MAX_LINE_BYTES // 1_000_000} MB",
                        hint="split it: a memory has at most 1,000,000 characters",
                    )
                yield line
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {(error.strerror or '').lower()}",
            hint="check its permissions",
        ) from error


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise UsageError(
            f"not UTF-8 (byte {error.start})", hint="convert the file to UTF-8"
        ) from error
    except RecursionError as error:
        raise UsageError("nested too deeply") from error
    except ValueError as error:
        raise UsageError(f"not JSON: {error}") from error


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a JSON number")


def _from_text(text: bytes) -> Memory:
    raw = _parsed(text)
    memory = _restored(memory_of(raw, trust=Trust.IMPORTED), raw.get(_OWN))
    check_pin(memory)
    return _named(memory)


def _named(memory: Memory) -> Memory:
    """Give the memory an id if it has none. The id is the same on every import of the file."""
    check(memory)
    if memory.id:
        return memory
    identity = json.dumps([memory.text, memory.namespace, memory.project, memory.source])
    return replace(memory, id="i" + hashlib.sha256(identity.encode()).hexdigest()[:19])


async def exported(library: Library) -> AsyncIterator[Memory]:
    """Every stored memory in every project, newest first. Memories derived from files are left out,
    because the files already contain them."""
    offset = 0
    while page := await library.list(limit=PAGE, offset=offset):
        for memory in page:
            yield memory
        offset += len(page)


def to_line(memory: Memory) -> str:
    """The memory as a line of JSON that `copy_memories()` can read back without loss."""
    origin = memory.provenance
    own = {
        "trust": str(memory.trust),
        "pinned": memory.pinned,
        "supersedes": memory.supersedes,
        "lines": memory.lines,
        "expires_at": memory.expires_at,
        "updated_at": memory.updated_at,
        "viewed_at": memory.viewed_at,
        "provenance": {entry.name: getattr(origin, entry.name) for entry in fields(origin)},
    }
    shape = {
        "id": memory.id,
        "text": memory.text,
        "namespace": memory.namespace,
        "tags": memory.tags,
        "paths": memory.paths,
        "symbols": memory.symbols,
        "triggers": memory.triggers,
        "occurrences": memory.occurrences,
        "project": memory.project,
        "source": memory.source,
        "created_at": memory.created_at,
    }
    return json.dumps({**shape, _OWN: own})


def to_markdown(memory: Memory) -> str:
    """The memory as Markdown for people to read."""
    details = [
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
    return "\n".join((f"## {memory.id}", "", memory.text.strip(), "", *details, ""))


def _day(at: float | None) -> str:
    return "" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def _restored(memory: Memory, own: object) -> Memory:
    """Restore the fields that only exports contain."""
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
        raise UsageError(f"{_OWN} does not look like part of an export: {error}") from error


def _text_or_none(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise ValueError(f"{value!a:.60} is not an id")


def _span(value: object) -> tuple[int, int] | None:
    if value is None:
        return None
    if isinstance(value, list) and len(value) == 2 and all(type(line) is int for line in value):
        return value[0], value[1]
    raise ValueError(f"{value!a:.60} is not a pair of lines")


def _time(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    raise ValueError(f"{value!a:.60} is not a time")
