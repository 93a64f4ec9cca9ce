"""Read the sections of a Markdown file, or the notes in an `stm.json`.

Secrets are masked here, before anything is stored.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.errors import StoreError
from upwell.ground.secrets.redact import redact
from upwell.ground.text.anchors import paths_in
from upwell.ground.text.words import path_words
from upwell.ground.types.memory import Memory
from upwell.memory.documents.front_matter import Front, front_of, namespace_of
from upwell.memory.documents.scan import FoundFile, KnownFile, UnreadableFile, read_bytes, text_of
from upwell.memory.documents.sections.memories import FilePlace, section_memory
from upwell.memory.documents.sections.rows import rows_from
from upwell.memory.documents.tables import FileReading
from upwell.memory.records import memory_of, stamped
from upwell.memory.sources import Form, Source

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

    def sources(self) -> list[Source]:
        """Return the source of the notes."""
        if self.notes is None:
            return []
        return [Source(os.path.realpath(self.notes.path), "", form=Form.STM)]

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
                readings.append(_settled(reading, now_ns))
        return readings

    def read(self, file: FoundFile, before: KnownFile | None) -> FileReading:
        """Read one file. If this fails, the reason becomes the reading's `problem`."""
        digest = ""
        try:
            data = read_bytes(file.path, file.source.path)
            digest = hashlib.sha256(data).hexdigest()[:32]
            if before and before.hash == digest and before.key == file.source.key:
                return FileReading(file, digest, unchanged=True)
            if file.source.form is Form.STM:
                return FileReading(file, digest, memories=self._notes(file))
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

    def _notes(self, file: FoundFile) -> tuple[Memory, ...]:
        # Notes written by hand were not masked when they were added.
        changed = file.mtime_ns / 1e9
        return tuple(
            stamped(
                memory_of(replace(note, text=redact(note.text)[0], tenant=self.tenant)),
                note.created_at or changed,
            )
            for note in (self.notes.memories() if self.notes else ())
            if note.text.strip()
        )


def _settled(reading: FileReading, now_ns: int) -> FileReading:
    """Clear the time stamp of a reading if the file has just changed or could not be opened, so
    that the next check reads the file again."""
    if reading.hash and reading.found.mtime_ns < now_ns - TICK_NS:
        return reading
    return replace(reading, found=replace(reading.found, mtime_ns=0))
