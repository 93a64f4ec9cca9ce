"""Read the sections of a Markdown file, or the notes in an `stm.json`.

Secrets are masked here, before anything is stored. A document's front matter gives the namespace,
tags and paths of its sections.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.errors import StoreError, UsageError
from upwell.ground.secrets.redact import redact
from upwell.ground.text.anchors import paths_in
from upwell.ground.text.words import path_words
from upwell.ground.types.memory import Memory
from upwell.memory.documents.catalog import FileReading
from upwell.memory.documents.scan import FoundFile, KnownFile, UnreadableFile, read_bytes, text_of
from upwell.memory.documents.sections.rows import FilePlace, rows_from, section_memory
from upwell.memory.records import ALIASES, KNOWN, memory_of, namespace, stamped
from upwell.memory.sources import Form

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
