"""Store sections as rows of `index.db`, with the terms by which they are found.

    file ──< section ──< posting     term → section, with a count for each field
                   └──< link         to another section, which is looked up when an index is
                                     opened, because it may be imported later

The weights and mean lengths of the fields are applied when a question is asked, because the means
change with every import.
"""

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from upwell.ground.types.memory import Memory, Provenance, Trust
from upwell.memory.documents.sections.parse import (
    CODE,
    TABLE,
    Link,
    Section,
    links_in,
    page_of,
    parse,
    rows_of,
)
from upwell.memory.documents.sections.terms import PATH_BREAKS, terms
from upwell.memory.ranking.terms import sound
from upwell.memory.records import stamped


class FilePlace(Struct, frozen=True):
    """The fields that all sections of a file share. `tags` is a JSON list. `changed_at` is in epoch
    seconds."""

    cited: str
    project: str | None
    namespace: str
    tags: str
    changed_at: float


def section_memory(
    id: str,
    text: str,
    lines: tuple[int, int],
    file: FilePlace,
    tenant: str,
    paths: tuple[str, ...] = (),
) -> Memory:
    memory = Memory(
        text=text,
        id=id,
        namespace=file.namespace,
        tags=tuple(json.loads(file.tags)),
        paths=paths,
        project=file.project,
        tenant=tenant,
        source=file.cited,
        lines=lines,
        provenance=Provenance(door="import"),
        trust=Trust.IMPORTED,
        created_at=file.changed_at,
        updated_at=file.changed_at,
        viewed_at=file.changed_at,
    )
    return stamped(memory, file.changed_at)


FIELDS = ("prose", "code", "table", "heading", "trail", "path")
"""The fields of a section that come from its own file, in packing order, lowest bits first."""
TEXT_FIELDS = 3
"""The number of fields at the start of `FIELDS` that contain the section's text."""
COUNT_BITS = 7
MAX_COUNT = (1 << COUNT_BITS) - 1


class SectionRow(Struct, frozen=True):
    """A section as stored. `place` is its number in the file, and `parent` is the number of the
    section above it (-1 at the top). The first set in `terms` has the terms of the headings and the
    path, and each of the others has the terms of one block. `counts` maps a term to its packed
    occurrences. `lengths` has the number of terms in each field."""

    id: str
    place: int
    parent: int
    section: Section
    text: str
    digest: int
    terms: tuple[frozenset[str], ...]
    counts: Mapping[str, int]
    lengths: tuple[int, ...]
    links: tuple[Link, ...]


def rows_from(path: str, cited: str, text: str, start: int = 0) -> list[SectionRow]:
    """Turn the sections of a file into rows. Their ids are made from `path`, and the field "path"
    has the terms of `cited`. The first `start` lines are front matter."""
    lines = rows_of(text)
    sections = parse(text, start)
    path_terms = terms(page_of(cited).translate(PATH_BREAKS))
    numbers: Counter[tuple[str, ...]] = Counter()
    rows = []
    for index, (section, parent) in enumerate(zip(sections, parents(sections), strict=True)):
        number = numbers[section.trail]
        numbers[section.trail] += 1
        quoted = "\n".join(lines[section.first - 1 : section.last])
        # Copies that are indented differently have the same digest.
        bare = "\n".join(line.strip() for line in quoted.strip().split("\n"))
        fields, blocks = _fields(section, path_terms)
        titles = frozenset(term for field in fields[TEXT_FIELDS:] for term in field)
        rows.append(
            SectionRow(
                id=section_id(path, section.trail, number),
                place=index,
                parent=parent,
                section=section,
                text=sound(quoted),
                digest=int.from_bytes(hashlib.sha256(bare.encode("utf-8", "replace")).digest()[:7]),
                terms=(titles, *blocks),
                counts=_packed(fields),
                lengths=tuple(map(len, fields)),
                links=tuple(links_in(cited, section)),
            )
        )
    return rows


def section_id(path: str, trail: Sequence[str], number: int) -> str:
    """Return an id made from the file's path, the section's headings, and its `number` among the
    file's sections with the same headings.
    """
    identity = "\n".join((path, *trail, str(number)))
    return "d" + hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:19]


def parents(sections: Sequence[Section]) -> Iterator[int]:
    """Return the place of the section above each section, or -1 at the top."""
    latest: dict[tuple[str, ...], int] = {}
    for index, section in enumerate(sections):
        above = (
            latest.get(section.trail[:depth]) for depth in range(len(section.trail) - 1, 0, -1)
        )
        yield next((number for number in above if number is not None), -1)
        latest[section.trail] = index


def _fields(
    section: Section, path_terms: Sequence[str]
) -> tuple[list[Sequence[str]], list[frozenset[str]]]:
    prose, code, table = list[str](), list[str](), list[str]()
    blocks: list[frozenset[str]] = []
    for block in section.blocks:
        block_terms = terms(block.text)
        (code if block.kind == CODE else table if block.kind == TABLE else prose).extend(
            block_terms
        )
        blocks.append(frozenset(block_terms))
    trail = [term for heading in section.trail[:-1] for term in terms(heading)]
    return [prose, code, table, terms(section.heading), trail, path_terms], blocks


def _packed(fields: Sequence[Sequence[str]]) -> dict[str, int]:
    """Pack the occurrences of each term, with `COUNT_BITS` bits per field, the first field in the
    lowest bits."""
    packed: dict[str, int] = {}
    for number, field in enumerate(fields):
        shift = number * COUNT_BITS
        for term, count in Counter(field).items():
            packed[term] = packed.get(term, 0) + (min(count, MAX_COUNT) << shift)
    return packed


def insert(db: sqlite3.Connection, file: int, project: str, rows: Sequence[SectionRow]) -> None:
    remove(db, file)
    if not rows:
        return
    db.execute("INSERT OR IGNORE INTO section_scope (project) VALUES (?)", (project,))
    found = db.execute("SELECT no FROM section_scope WHERE project = ?", (project,)).fetchone()
    scope = int(found[0])
    base = db.execute("SELECT coalesce(max(no), 0) + 1 FROM section").fetchone()[0]
    db.executemany(
        "INSERT INTO section VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                base + row.place,
                row.id,
                file,
                scope,
                base + row.parent if row.parent >= 0 else None,
                sound("\n".join(row.section.trail)),
                row.section.level,
                row.section.first,
                row.section.last,
                row.digest,
                " ".join(map(str, row.lengths)),
                row.text if row.section.blocks else "",
                "\n".join(" ".join(sorted(block_terms)) for block_terms in row.terms),
            )
            for row in rows
        ],
    )
    db.executemany(
        "INSERT INTO posting VALUES (?, ?, ?, ?)",
        sorted(
            (term, scope, base + row.place, counts)
            for row in rows
            for term, counts in row.counts.items()
        ),
    )
    db.executemany(
        "INSERT INTO link VALUES (?, ?, ?, ?, ?)",
        [
            (base + row.place, sound(link.page), sound(link.anchor),
             " ".join(link.terms), " ".join(link.near))
            for row in rows
            for link in row.links
        ],
    )  # fmt: skip


def remove(db: sqlite3.Connection, file: int) -> None:
    rows = db.execute("SELECT no, scope, terms FROM section WHERE file = ?", (file,)).fetchall()
    db.executemany(
        "DELETE FROM posting WHERE term = ? AND scope = ? AND section = ?",
        [(term, scope, no) for no, scope, block_terms in rows for term in set(block_terms.split())],
    )
    db.executemany("DELETE FROM link WHERE section = ?", [(no,) for no, _, _ in rows])
    db.execute("DELETE FROM section WHERE file = ?", (file,))


def scopes(db: sqlite3.Connection, project: str | None) -> list[int] | None:
    """Return the scopes that `project` sees. Without a project, return None, which means every
    scope."""
    if project is None:
        return None
    rows = db.execute("SELECT no FROM section_scope WHERE project IN ('', ?)", (project,))
    return [row[0] for row in rows]


def create(db: sqlite3.Connection) -> None:
    for statement in (
        "CREATE TABLE section_scope (no INTEGER PRIMARY KEY, project TEXT NOT NULL UNIQUE)",
        """CREATE TABLE section (
            no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
            file INTEGER NOT NULL REFERENCES file (no), scope INTEGER NOT NULL, parent INTEGER,
            trail TEXT NOT NULL, level INTEGER NOT NULL, first_line INTEGER NOT NULL,
            last_line INTEGER NOT NULL, digest INTEGER NOT NULL, lengths TEXT NOT NULL,
            text TEXT NOT NULL, terms TEXT NOT NULL)""",
        "CREATE INDEX section_file ON section (file)",
        """CREATE TABLE posting (
            term TEXT NOT NULL, scope INTEGER NOT NULL, section INTEGER NOT NULL,
            counts INTEGER NOT NULL, PRIMARY KEY (term, scope, section)) WITHOUT ROWID""",
        """CREATE TABLE link (
            section INTEGER NOT NULL, page TEXT NOT NULL, anchor TEXT NOT NULL,
            terms TEXT NOT NULL, near TEXT NOT NULL)""",
        "CREATE INDEX link_section ON link (section)",
    ):
        db.execute(statement)
