"""From a file to its memories: a Markdown file's chunks, an `stm.json`'s notes. Nothing leaves
here before its secrets are masked."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from upwell.ground.errors import StoreError
from upwell.ground.redact import redact
from upwell.ground.text.anchors import paths_in
from upwell.ground.text.words import path_words
from upwell.ground.types import Memory, Provenance, Trust
from upwell.memory.chunks import Chunk, cut
from upwell.memory.derived import Reading
from upwell.memory.frontmatter import Front, front_of, namespace_of
from upwell.memory.rows import stamped
from upwell.memory.scan import Found, Known, Unreadable, read_bytes, text_of
from upwell.memory.shape import memory_of
from upwell.memory.sources import Form, Source

TICK_NS = 50_000_000
"""Two changes within this time may have the same time of change; so young a file is looked into
again at the next check."""
MAX_TAGS = 50


class Notes(Protocol):
    """The short-term notes of one `stm.json`."""

    @property
    def path(self) -> Path: ...

    def memories(self) -> Sequence[Memory]:
        """Every note as a memory, cited as `stm:id`. Looking so is not viewing."""
        ...


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads files for a tenant. `notes` are those of the one `stm.json` there is."""

    tenant: str
    notes: Notes | None = None

    def sources(self) -> list[Source]:
        """Where the notes stand."""
        if self.notes is None:
            return []
        return [Source(os.path.realpath(self.notes.path), "", form=Form.STM)]

    def read_all(
        self, files: Iterable[Found], known: Mapping[str, Known], now_ns: int
    ) -> list[Reading]:
        """Read these files. `known` says what was there before: the same is not cut again, and
        what could not be opened then and cannot now is not reported anew."""
        readings = []
        for found in files:
            before = known.get(found.path)
            reading = self.read(found, before)
            if reading.hash or before is None or before.hash or before.key != found.source.key:
                readings.append(_settled(reading, now_ns))
        return readings

    def read(self, found: Found, before: Known | None) -> Reading:
        """Read one file. What stands in its way is the reading's `problem`."""
        digest = ""
        try:
            data = read_bytes(found.path, found.source.path)
            digest = hashlib.sha256(data).hexdigest()[:32]
            if before and before.hash == digest and before.key == found.source.key:
                return Reading(found, digest, None)
            if found.source.form is Form.STM:
                return Reading(found, digest, self._notes(found))
            memories, around = _chunks(found, text_of(data), self.tenant)
            return Reading(found, digest, memories, around)
        except Unreadable as error:
            return Reading(found, digest, problem=str(error))
        except StoreError as error:
            return Reading(found, digest, problem=error.message)

    def _notes(self, found: Found) -> tuple[Memory, ...]:
        """What somebody wrote into the file by hand may hold secrets."""
        changed = found.mtime_ns / 1e9
        return tuple(
            stamped(
                memory_of(replace(note, text=redact(note.text)[0], tenant=self.tenant)),
                note.created_at or changed,
            )
            for note in (self.notes.memories() if self.notes else ())
            if note.text.strip()
        )


def _settled(reading: Reading, now_ns: int) -> Reading:
    """What is very young, or could not be opened, is tried again at the next check."""
    if reading.hash and reading.found.mtime_ns < now_ns - TICK_NS:
        return reading
    return replace(reading, found=replace(reading.found, mtime_ns=0))


def _chunks(found: Found, raw: str, tenant: str) -> tuple[tuple[Memory, ...], dict[str, str]]:
    text, _ = redact(raw, keep_lines=True)
    front = front_of(text)
    memories: list[Memory] = []
    around: dict[str, str] = {}
    for chunk in cut(text, front.end):
        memory = _chunk(found, front, chunk, tenant)
        memories.append(memory)
        around[memory.id] = " ".join((*path_words(memory.source), *chunk.headings))
    return tuple(memories), around


def _chunk(found: Found, front: Front, chunk: Chunk, tenant: str) -> Memory:
    changed = found.mtime_ns / 1e9
    cited = found.source.citation(found.path)
    memory = memory_of(
        Memory(
            text=chunk.text,
            id=chunk_id(found.path, chunk),
            namespace=namespace_of(front, cited),
            tags=front.tags[:MAX_TAGS],
            paths=(*front.paths, *paths_in(chunk.text)) if front.paths else (),
            project=found.source.project,
            tenant=tenant,
            source=cited,
            lines=chunk.lines,
            provenance=Provenance(door="import"),
            trust=Trust.IMPORTED,
            created_at=changed,
            updated_at=changed,
            viewed_at=changed,
        )
    )
    return stamped(memory, changed)


def chunk_id(path: str, chunk: Chunk) -> str:
    """The same for as long as the file, the headings above and the place below them are."""
    named = "\n".join((path, *chunk.headings, str(chunk.number)))
    return "d" + hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:19]
