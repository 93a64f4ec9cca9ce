"""Find the imported files that have changed, and read the sections of a Markdown file, or the notes
in an `stm.json`.

Symbolic links are not followed, devices and pipes are never read, and hidden files inside a source
are left out. A scan therefore cannot leave an imported folder, and nothing in the folder can make a
search hang. Hidden folders such as `.github` are read, unless a program keeps its own files there.

Secrets are masked here, before anything is stored. A document's front matter gives the namespace,
tags and paths of its sections.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from upwell.ground.errors import StoreError, UsageError
from upwell.ground.secrets.redact import redact
from upwell.ground.text.anchors import paths_in
from upwell.ground.text.words import path_words
from upwell.ground.types.memory import Memory
from upwell.memory.documents.sections.rows import (
    FilePlace,
    SectionRow,
    rows_from,
    section_memory,
)
from upwell.memory.records import ALIASES, KNOWN, is_text, memory_of, namespace, stamped
from upwell.memory.sources import Form, Source

MARKDOWN = (".md", ".markdown")
SKIPPED_FOLDERS = frozenset(
    """
    node_modules __pycache__ .git .hg .svn .jj .bzr .upwell .specstory .history .trash .local
    .stversions .snapshots .npm .yarn .pnpm-store .cargo .rustup .gradle .m2 .nvm .pyenv .rbenv
    .bundle .tox .nox .eggs .venv .virtualenvs .direnv .terraform .next .nuxt .svelte-kit .astro
    .docusaurus .angular .dart_tool .build .stack-work .entire
    """.split()
)
"""Folders of programs: repositories, installed packages, build output, former versions of files,
and transcripts of sessions, which upwell reads by itself."""
_TEMPORARY = ("cache", "trash", "tmp", "temp")
_MARKS_OF_PROGRAMS = frozenset({"pyvenv.cfg", "CACHEDIR.TAG"})
"""Files that mark a virtual environment and a cache (https://bford.info/cachedir/)."""
MAX_FILE_BYTES = 10_000_000
MAX_FILES = 200_000
"""Once a source has this many files, its remaining folders are not scanned. A larger source is
unlikely to contain only notes."""


class Problem(Struct, frozen=True):
    """A path that was left out, and the reason."""

    path: str
    why: str


class FoundFile(Struct, frozen=True):
    """A file in a source, with its size in bytes and its modification time in nanoseconds."""

    path: str
    size: int
    mtime_ns: int
    source: Source


class KnownFile(Struct, frozen=True):
    """The state of a file when it was last read. `key` is the key of its source."""

    size: int
    mtime_ns: int
    hash: str
    key: str


class Look(Struct):
    """The result of a scan. `changed` are the new or changed files, and `present_paths` are the
    paths of all files."""

    changed: list[FoundFile] = field(default_factory=list)
    present_paths: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def take(
        self, path: str, info: os.stat_result, source: Source, key: str, before: KnownFile | None
    ) -> None:
        self.present_paths.add(path)
        if (
            before is None
            or before.mtime_ns != info.st_mtime_ns
            or before.size != info.st_size
            or before.key != key
        ):
            self.changed.append(FoundFile(path, info.st_size, info.st_mtime_ns, source))


class UnreadableFile(Exception):
    """A file cannot be read. The message is the reason."""


def scan(sources: Iterable[Source], every: Collection[str], known: Mapping[str, KnownFile]) -> Look:
    """Scan the files in `sources`. `every` lists the paths of all sources: if one of them lies
    inside another, its files belong to it and not to the outer source."""
    look = Look()
    for source in sources:
        try:
            info = os.stat(source.path, follow_symlinks=False)
        except OSError as error:
            if source.form is Form.MARKDOWN:
                look.problems.append(Problem(source.path, _why(error)))
            continue
        if stat.S_ISREG(info.st_mode):
            look.take(source.path, info, source, source.key, known.get(source.path))
        elif stat.S_ISDIR(info.st_mode) and source.form is Form.MARKDOWN:
            others = {path for path in every if path != source.path and source.holds(path)}
            _scan_folder(source, others, known, look)
        else:
            look.problems.append(Problem(source.path, "it is no longer a file or folder"))
    return look


def _scan_folder(
    source: Source, others: set[str], known: Mapping[str, KnownFile], look: Look
) -> None:
    key, end = source.key, len(look.present_paths) + MAX_FILES
    folders = [(source.path, False)]
    while folders:
        folder, is_hidden = folders.pop()
        if len(look.present_paths) >= end:
            look.problems.append(
                Problem(folder, f"left out, after {MAX_FILES:,} files of this source")
            )
            return
        try:
            with os.scandir(folder) as found:
                entries = list(found)
            if folder != source.path and _is_of_program(entries, is_hidden=is_hidden):
                continue
            for entry in entries:
                name, path = entry.name, entry.path
                if path in others:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    is_temporary = name[0] == "." and any(n in name.lower() for n in _TEMPORARY)
                    if not is_temporary and name not in SKIPPED_FOLDERS:
                        folders.append((path, is_hidden or name[0] == "."))
                elif name[0] != "." and name.endswith(MARKDOWN) and _may_be_read(entry, look):
                    info = entry.stat(follow_symlinks=False)
                    look.take(path, info, source, key, known.get(path))
        except OSError as error:
            look.problems.append(Problem(folder, _why(error)))


def _is_of_program(entries: Iterable[os.DirEntry[str]], *, is_hidden: bool) -> bool:
    """True for a virtual environment and a cache, and for a checkout in a hidden folder: the
    worktree of an agent, or a plugin."""
    names = {entry.name for entry in entries}
    return not _MARKS_OF_PROGRAMS.isdisjoint(names) or (is_hidden and ".git" in names)


def _may_be_read(entry: os.DirEntry[str], look: Look) -> bool:
    if entry.is_symlink():
        look.problems.append(Problem(entry.path, "symbolic links are not followed"))
        return False
    if not entry.is_file(follow_symlinks=False):
        return False
    if entry.path.isascii() or is_text(entry.path):
        return True
    look.problems.append(Problem(ascii(entry.path), "its name is not UTF-8"))
    return False


def read_bytes(path: str, root: str) -> bytes:
    """Read a regular file inside `root`. Raises UnreadableFile if the file cannot be read, is too
    large, is no longer a regular file, is outside `root`, or is behind a symbolic link."""
    if os.path.realpath(path) != path or not (path == root or path.startswith(root + os.sep)):
        raise UnreadableFile("symbolic links are not followed")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise UnreadableFile("it is no longer a file")
            if info.st_size > MAX_FILE_BYTES:
                most = MAX_FILE_BYTES / 1e6
                raise UnreadableFile(f"over {most:.0f} MB")
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UnreadableFile(_why(error)) from error


def text_of(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"not UTF-8 (byte {error.start})") from error


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


MAX_FRONT_CHARS = 16_000
MAX_FRONT_DEPTH = 8
"""Front matter that is longer or nested more deeply is read as text."""
_FRONT = re.compile(r"\A---[ \t]*\r?\n((?:[^\n]*+\n){0,200}?)---[ \t]*(?:\r?\n|\Z)")


class Front(Struct, frozen=True):
    """The front matter of a document. The body begins at the character offset `end`."""

    namespace: str = ""
    tags: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    end: int = 0


def front_of(text: str) -> Front:
    """Parse the front matter of `text`. A block that is not a YAML mapping belongs to the body."""
    block = block_of(text)
    if block is None:
        return Front()
    fields, end = block
    name = next(iter(_texts(fields.get("namespace"))), "")
    try:
        name = namespace(name) if name else ""
    except UsageError:
        name = ""
    return Front(
        namespace=name,
        tags=_texts(fields.get("tags")),
        paths=_texts(fields.get("paths")),
        end=end,
    )


def block_of(text: str, max_chars: int = MAX_FRONT_CHARS) -> tuple[dict[str, object], int] | None:
    """Return the fields of the front matter of `text`, keyed by lower-case name, and the offset of
    the body. Returns None if `text` does not begin with a YAML mapping of at most `max_chars`."""
    match = _FRONT.match(text)
    if match is None or len(match.group(1)) > max_chars:
        return None
    # Imported here because only documents with front matter need it.
    import yaml

    # With this loader, scalars stay text. No constructor runs, and `2026-04-09` and `no` stay as
    # written.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        if not _is_plain(yaml.parse(match[1], loader), yaml):
            return None
        fields = yaml.load(match[1], loader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    fields = {} if fields is None else fields
    if not isinstance(fields, dict):
        return None
    named = {name.lower(): value for name, value in fields.items() if isinstance(name, str)}
    return named, match.end()


def _is_plain(events: Iterable[Any], yaml: Any) -> bool:
    """Return whether the block has no deep nesting and no aliases. Aliases can expand without
    bound."""
    depth = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            return False
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_FRONT_DEPTH:
            return False
    return True


def namespace_of(front: Front, path: str) -> str:
    """Return the namespace in a document's front matter. If there is none, use the innermost folder
    in `path` that is named after a usual namespace (`memory/decisions/db.md`), or else the default
    namespace."""
    folders = path.split("/")[:-1]
    known = (name.lower() for name in reversed(folders) if name.lower() in {*KNOWN, *ALIASES})
    return front.namespace or namespace(next(known, ""))


def _texts(value: object) -> tuple[str, ...]:
    parts = value if isinstance(value, list) else str(value or "").split(",")
    texts = (part.strip().strip("\"'").strip() for part in parts if isinstance(part, str))
    return tuple(filter(None, texts))


TICK_NS = 50_000_000
"""Two changes within this time, in nanoseconds, may have the same time stamp. A file that changed
so recently is therefore read again on the next check.
"""
MAX_TAGS = 50


class Notes(Protocol):
    """The short-term notes of one `stm.json`."""

    @property
    def path(self) -> Path: ...

    def memories(self) -> Sequence[Memory]:
        """Return every note as a memory, cited as `stm:id`, without marking it as viewed."""
        ...


class FileReading(Struct, frozen=True):
    """A file that was read, with its `sections` and `memories`. `around` maps the id of a memory to
    the words in its headings and in the path of its file. `changed_at` is in epoch seconds.
    `problem` is the reason why the file could not be read. An `unchanged` file keeps its sections
    and memories in the index."""

    found: FoundFile
    hash: str
    sections: tuple[SectionRow, ...] = ()
    memories: tuple[Memory, ...] = ()
    around: Mapping[str, str] = field(default_factory=dict)
    changed_at: float = 0.0
    namespace: str = ""
    tags: tuple[str, ...] = ()
    problem: str = ""
    unchanged: bool = False


class FileReader(Struct, frozen=True):
    """Reads files for a tenant. `notes` are those in the tenant's `stm.json`. If `embeds` is set,
    every section with text also becomes a memory, so that searches by meaning find it."""

    tenant: str
    notes: Notes | None = None
    embeds: bool = False

    def read_all(
        self, files: Iterable[FoundFile], known: Mapping[str, KnownFile], now_ns: int
    ) -> list[FileReading]:
        """Read these files. `known` is the state when they were last read. Unchanged content is not
        split into sections again, and a file that still cannot be opened is left out."""
        readings = []
        for file in files:
            before = known.get(file.path)
            reading = self.read(file, before)
            if reading.hash or before is None or before.hash or before.key != file.source.key:
                if not reading.hash or file.mtime_ns >= now_ns - TICK_NS:
                    # It just changed or could not be opened, so the next check reads it again.
                    reading = replace(reading, found=replace(file, mtime_ns=0))
                readings.append(reading)
        return readings

    def read(self, file: FoundFile, before: KnownFile | None) -> FileReading:
        digest = ""
        try:
            data = read_bytes(file.path, file.source.path)
            digest = hashlib.sha256(data).hexdigest()[:32]
            if before and before.hash == digest and before.key == file.source.key:
                return FileReading(file, digest, unchanged=True)
            if file.source.form is Form.STM:
                # Notes written by hand were not masked when they were added.
                notes = tuple(
                    stamped(
                        memory_of(replace(note, text=redact(note.text)[0], tenant=self.tenant)),
                        note.created_at or file.mtime_ns / 1e9,
                    )
                    for note in (self.notes.memories() if self.notes else ())
                    if note.text.strip()
                )
                return FileReading(file, digest, memories=notes)
            return self._sections(file, digest, text_of(data))
        except UnreadableFile as error:
            return FileReading(file, digest, problem=str(error))
        except StoreError as error:
            return FileReading(file, digest, problem=error.message)

    def _sections(self, file: FoundFile, digest: str, raw: str) -> FileReading:
        text, _ = redact(raw, keep_lines=True)
        front = front_of(text)
        cited = file.source.citation(file.path)
        reading = FileReading(
            file,
            digest,
            sections=tuple(rows_from(file.path, cited, text, text.count("\n", 0, front.end))),
            changed_at=file.mtime_ns / 1e9,
            namespace=namespace_of(front, cited),
            tags=front.tags[:MAX_TAGS],
        )
        return self._with_memories(reading, front) if front.paths or self.embeds else reading

    def _with_memories(self, reading: FileReading, front: Front) -> FileReading:
        """Add the sections of `reading` as memories. If the front matter lists paths, searches
        then find the sections by paths; if there are embeddings, also by meaning."""
        source = reading.found.source
        cited = source.citation(reading.found.path)
        file = FilePlace(
            cited, source.project, reading.namespace, json.dumps(reading.tags), reading.changed_at
        )
        memories = []
        context_words = {}
        for row in reading.sections:
            if row.section.blocks:
                paths = (*front.paths, *paths_in(row.text)) if front.paths else ()
                lines = row.section.first, row.section.last
                memory = section_memory(row.id, row.text, lines, file, self.tenant, paths)
                memories.append(memory_of(memory))
                context_words[row.id] = " ".join((*path_words(cited), *row.section.trail))
        return replace(reading, memories=tuple(memories), around=context_words)
