"""Import and export memories.

Markdown becomes a live source: it is not copied, and upwell reads it again when it changes
(`memory/sources.py`). JSON lines are copied into the store, and the notes from another `stm.json`
are copied into the one in use. Importing the same file again creates no duplicates, and no import
changes a memory that is already there. Only lines that the user exported are the user's own
(`memory/line.py`). The standing rules of other lines are proposed, not stored.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import batched
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from upwell.ground.errors import StoreError, UsageError
from upwell.ground.project import repository_of
from upwell.ground.text.words import counted
from upwell.ground.types.memory import Memory, Trust
from upwell.memory.documents.reading import Problem
from upwell.memory.documents.recall import Documents
from upwell.memory.library import Library
from upwell.memory.line import MemoryLine, read_line
from upwell.memory.meaning import Progress
from upwell.memory.notes import Origin
from upwell.memory.sources import Source, Sources, source_at
from upwell.memory.stm import ShortTerm, read_notes


class Imported(Struct, frozen=True, kw_only=True):
    """The outcome of an import.

    `files`, `chunks` and `problems` describe a live source. The others describe a copy:

    - `stored`: the number of memories.
    - `own`: how many of them the user had exported, so that they are as they were.
    - `rules`: the number of standing rules that wait for the user's review.
    - `conflicts`: the ids of memories that were left out, because another memory has the id.
    - `redacted`: the number of memories in which each masking rule masked secrets.
    """

    path: str
    format: str
    files: int = 0
    chunks: int = 0
    problems: tuple[Problem, ...] = ()
    stored: int = 0
    own: int = 0
    rules: int = 0
    conflicts: tuple[str, ...] = ()
    redacted: Mapping[str, int] = field(default_factory=dict)


Propose = Callable[[Sequence[Memory]], None]
"""Puts memories that somebody else wants to be standing rules before the user."""


class Imports:
    """Imports files and folders, and removes live sources. `key` returns the key with which this
    home signs its exports."""

    def __init__(
        self,
        library: Library,
        documents: Documents,
        sources: Sources,
        notes: ShortTerm,
        *,
        propose: Propose,
        key: Callable[[], bytes],
    ) -> None:
        self._library = library
        self._documents = documents
        self._sources = sources
        self._notes = notes
        self._propose = propose
        self.key = key

    async def all(self) -> list[Source]:
        return await self._sources.all()

    async def add(
        self,
        path: Path,
        folder: Path,
        format_name: str,
        progress: Progress,
        projects: Mapping[str, str] = MappingProxyType({}),
        *,
        vouched: bool = False,
    ) -> Imported:
        """Import `path` in the format `format_name`; "auto" chooses the format by the suffix.
        Citations of Markdown files are relative to `folder`. `projects` maps the projects named in
        the file to folders on this machine. `vouched`: the user says that the JSON lines are an
        export of the user's own.

        Raises:
            UsageError: there is nothing to import, the format is unknown, `projects` or `vouched`
                is given for a file that has no JSON lines, a memory is malformed, the library is
                full, or `path` is the home folder or contains it.
            StoreError: the store failed. If the file has JSON lines, its earlier batches stay
                stored, and the hint reports how many memories they contain.
        """
        if not path.exists():
            raise UsageError(f"cannot import {path}: no such file or folder", hint="check the path")
        form = format_of(path, format_name)
        if projects and form != "jsonl":
            raise UsageError(f"{path} names no projects to replace", hint="only JSON lines do")
        if vouched and form != "jsonl":
            raise UsageError(f"{path} is no export of upwell", hint="JSON lines are")
        if form == "markdown":
            return await self._watched(path, folder, progress)
        if form == "stm":
            copied = await asyncio.to_thread(copy_notes, self._notes, path)
        else:
            copied = await copy_memories(
                self._library,
                path,
                progress,
                projects,
                propose=self._propose,
                key=self.key(),
                vouched=vouched,
            )
        return Imported(path=str(path), format=form, **asdict(copied))

    async def _watched(self, path: Path, folder: Path, progress: Progress) -> Imported:
        # Most Markdown files in the home folder and its parents are not notes.
        home = Path.home().resolve()
        if path.resolve() in (home, *home.parents):
            raise UsageError(
                f"{path} contains all of your files, not only notes",
                hint="import the folders with notes, like `upwell import ~/notes`",
            )
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
            format="markdown",
            files=files,
            chunks=chunks,
            problems=tuple(problem for problem in state.problems if source.holds(problem.path)),
        )

    async def drop_source(self, path: Path) -> None:
        """Remove a live source and its memories. Raises UsageError if the path was not imported."""
        for spelling in dict.fromkeys((str(path.resolve()), str(path.absolute()), str(path))):
            if await self._sources.remove(spelling):
                await self._documents.refresh()
                return
        raise UsageError(f"{path} is not imported", hint="`upwell import` lists the imports")


FORMATS = ("auto", "markdown", "stm", "jsonl")
BATCH = 1_000
"""Memories per transaction."""
PAGE = 5_000
MAX_LINE_BYTES = 16_000_000
"""The maximum length of a line. A memory of a million characters fits, with its other fields, even
if every character is a JSON escape."""
_MARKDOWN = (".md", ".markdown")
_LINES = (".jsonl", ".ndjson")


class Copied(Struct):
    """The outcome of copying a file. The fields are as in `Imported`."""

    stored: int = 0
    own: int = 0
    rules: int = 0
    conflicts: tuple[str, ...] = ()
    redacted: Counter[str] = field(default_factory=Counter[str])


def format_of(path: Path, format_name: str = "auto") -> str:
    """Return `format_name` or, if that is "auto", the format that the suffix suggests. Raises
    UsageError if the format or the suffix is unknown."""
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
    return Copied(stored=len(stored), redacted=Counter(fired))


async def copy_memories(
    library: Library,
    path: Path,
    progress: Progress,
    projects: Mapping[str, str] = MappingProxyType({}),
    *,
    propose: Propose | None = None,
    key: bytes = b"",
    vouched: bool = False,
) -> Copied:
    """Copy memories from a file of JSON lines, batch by batch. A memory gets a new project if its
    project is in `projects`, or is a folder inside one of them. Lines that are signed with `key`,
    and all lines of a file that the user has `vouched` for, are the user's own.

    Raises:
        UsageError: the file cannot be read, a memory in it is malformed (the message gives the file
            and line), or the library is full. The hint reports how many memories were stored.
        StoreError: a batch was not stored. Earlier batches stay stored.
    """
    if not path.is_file():
        raise UsageError(f"cannot import {path}: not a regular file", hint="name another file")
    size, copied = max(1, path.stat().st_size), Copied()
    read = partial(read_line, key=key, vouched=vouched)
    try:
        for batch in batched(_lines(path, read), BATCH):
            lines = [replace(line, memory=_moved(line.memory, projects)) for line, _ in batch]
            await _store(library, lines, copied, propose)
            progress(batch[-1][1], size)
        return copied
    except (StoreError, UsageError) as error:
        earlier = f"{counted(copied.stored, 'earlier memory', 'earlier memories')} stored"
        done = earlier if copied.stored else "nothing was stored"
        error.hint = f"{error.hint}; {done}" if error.hint else done
        raise


async def _store(
    library: Library, lines: Sequence[MemoryLine], copied: Copied, propose: Propose | None
) -> None:
    """Store a batch, propose its rules, and count both in `copied`."""
    stored = await library.store.get_many([line.memory.id for line in lines])
    known = {memory.id: memory for memory in stored}
    fresh: list[Memory] = []
    proposed: list[Memory] = []
    conflicts: list[str] = []
    kept = own = 0
    for line in lines:
        memory, before = line.memory, known.get(line.memory.id)
        if not _is_admitted(line, before):
            conflicts.append(memory.id)
        elif line.is_rule and not line.is_own and (before is None or not before.pinned):
            proposed.append(memory)
        else:
            kept, own = kept + 1, own + line.is_own
            if before is None or line.is_own or before.trust is Trust.IMPORTED:
                known[memory.id] = _with_earlier_times(memory, before)
                fresh.append(known[memory.id])
    added = await library.add_many(fresh)
    copied.stored += kept
    copied.own += own
    copied.conflicts += tuple(conflicts)
    copied.redacted.update(rule for result in added for rule in result.redacted)
    if proposed:
        if propose:
            await asyncio.to_thread(propose, proposed)
        copied.rules += len(proposed)


def _is_admitted(line: MemoryLine, before: Memory | None) -> bool:
    """False if another memory has the line's id, unless the line is a later version of it that the
    user exported."""
    if before is None or before.text == line.memory.text:
        return True
    return line.is_own and (line.memory.updated_at or 0.0) >= (before.updated_at or 0.0)


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


def _with_earlier_times(memory: Memory, before: Memory | None) -> Memory:
    """If the store has the memory already, take from it the times that the file lacks."""
    if before is None or before.text != memory.text:
        return memory
    return replace(
        memory,
        created_at=before.created_at if memory.created_at is None else memory.created_at,
        updated_at=before.updated_at if memory.updated_at is None else memory.updated_at,
        viewed_at=before.viewed_at if memory.viewed_at is None else memory.viewed_at,
    )


def _lines(path: Path, read: Callable[[bytes], MemoryLine]) -> Iterator[tuple[MemoryLine, int]]:
    """The memories in a file, each with the byte offset at which its line ends."""
    number = end = 0
    try:
        with path.open("rb") as file:
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number, end = number + 1, end + len(raw)
                if len(raw) > MAX_LINE_BYTES:
                    raise UsageError(
                        f"the line has over {MAX_LINE_BYTES // 1_000_000} MB",
                        hint="split it: a memory has at most 1,000,000 characters",
                    )
                if text := raw.removeprefix(b"\xef\xbb\xbf").strip():
                    yield read(text), end
    except UsageError as error:
        raise UsageError(f"{path}:{number}: {error.message}", hint=error.hint) from error
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {(error.strerror or '').lower()}",
            hint="check its permissions",
        ) from error


async def exported(library: Library) -> AsyncIterator[Memory]:
    """Every stored memory in every project, newest first. Memories derived from files are left out,
    because the files already contain them."""
    offset = 0
    while page := await library.list(limit=PAGE, offset=offset):
        for memory in page:
            yield memory
        offset += len(page)


def to_markdown(memory: Memory) -> str:
    until = memory.expires_at
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
            (
                "until",
                until is not None and f"{datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M} UTC",
            ),
        )
        if value
    ]
    return "\n".join((f"## {memory.id}", "", memory.text.strip(), "", *details, ""))
