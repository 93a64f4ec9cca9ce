"""One memory as a Markdown file: front matter, then the text. And the state on which the folder and
the store last agreed, in a file of upwell's home.
"""

import hashlib
import json
import os
import unicodedata
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from upwell.ground.errors import UsageError
from upwell.ground.files import write_atomically, writing
from upwell.ground.project import in_project, is_below
from upwell.ground.secrets.redact import redact
from upwell.ground.text.anchors import paths_in
from upwell.ground.types.memory import IMPORT, Memory, Provenance, Trust
from upwell.memory.documents.reading import FoundFile, KnownFile, block_of
from upwell.memory.records import (
    MAX_ID_CHARS,
    check,
    is_text,
    masked,
    memory_of,
    moment,
    namespace,
)
from upwell.memory.sources import Source

MARK = ".upwell-folder"
"""A file that shows that the folder is there: when a disk is not mounted, no file was deleted."""
MAX_LINES = 100
MAX_NAME_BYTES = 80


class Entry(Struct, kw_only=True):
    """A file, and the `version` of its memory: the time of its last change. `problem` is the reason
    why the file cannot be used as it is; until it changes, neither side is touched. `taken` is the
    digest of the memory that was last taken from the file; a killed round may have stored it."""

    id: str = ""
    version: float = 0.0
    size: int = 0
    mtime_ns: int = 0
    hash: str = ""
    problem: str = ""
    taken: str = ""


class State(Struct):
    """The folder, its files by relative path, the project of each subfolder that upwell made, and
    the lines that no person has read yet. `failures` are the reasons why files could not be
    written."""

    folder: str
    files: dict[str, Entry] = field(default_factory=dict)
    projects: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def source(self) -> Source:
        return Source(self.folder, "")

    def known(self) -> dict[str, KnownFile]:
        key = self.source.key
        return {
            self.path(name): KnownFile(entry.size, entry.mtime_ns, entry.hash, key)
            for name, entry in self.files.items()
        }

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def project_of(self, name: str) -> str | None:
        return self.projects.get(os.path.dirname(name))

    def subfolder(self, project: str | None) -> str:
        """The subfolder of a project, which differs from all others even if case is ignored; "" for
        memories of every project."""
        if project is None:
            return ""
        for name, owner in self.projects.items():
            if owner == project:
                return name
        bare = os.path.basename(project.rstrip("/")).removesuffix(".git").lstrip(".") or "project"
        bare = bare.encode()[:MAX_NAME_BYTES].decode(errors="ignore")
        taken = {name.casefold() for name in self.projects}
        name, number = bare, 2
        while name.casefold() in taken:
            name, number = f"{bare}-{number}", number + 1
        self.projects[name] = project
        return name

    def is_as_seen(self, name: str) -> bool:
        """Whether the file is as it was when this entry was made, and in the folder itself."""
        entry, path = self.files[name], self.path(name)
        try:
            info = os.lstat(path)
        except OSError:
            return False
        return (info.st_size, info.st_mtime_ns) == (entry.size, entry.mtime_ns) and (
            is_below(os.path.realpath(path), self.folder)
        )

    def see(self, found: FoundFile, name: str) -> Entry:
        """The entry of a file, with its present size and time."""
        entry = self.files.setdefault(name, Entry())
        entry.size, entry.mtime_ns = found.size, found.mtime_ns
        return entry

    def say(self, line: str) -> None:
        """Keep a line for the next command of a person."""
        if line not in self.lines:
            self.lines = [*self.lines, line][-MAX_LINES:]


def load(path: Path) -> State | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except (OSError, msgspec.DecodeError):
        return None


def save(path: Path, state: State) -> None:
    """Replace the state in this file. Raises StoreUnwritable."""
    with writing(path):
        write_atomically(path, msgspec.json.encode(state))


MAX_FRONT_CHARS = 200_000
"""Enough for 200 paths of a thousand characters."""
_MAX_SLUG_CHARS = 40
_FENCE = "---\n"


class Page(Struct, frozen=True, kw_only=True):
    """What a file says. `has_front`: without front matter, a file changes only its memory's
    text."""

    text: str
    id: str = ""
    project: str | None = None
    namespace: str = ""
    tags: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    created: str | None = None
    has_front: bool = False


def page_in(raw: str) -> Page:
    """Read a file. Raises UsageError if it has no text, or its front matter is not a YAML mapping
    of known values."""
    raw = raw.replace("\r\n", "\n")
    if not raw.startswith(_FENCE):
        return _with_text(Page(text=raw))
    block = block_of(raw, MAX_FRONT_CHARS)
    if block is None:
        raise UsageError("its front matter is not YAML fields between two lines of ---")
    fields, end = block
    return _with_text(
        Page(
            text=raw[end:],
            id=_one(fields, "id") or "",
            project=_one(fields, "project"),
            namespace=namespace(_one(fields, "namespace") or ""),
            tags=_many(fields, "tags"),
            paths=_many(fields, "paths"),
            created=_one(fields, "created"),
            has_front=True,
        )
    )


def memory_from(
    page: Page, before: Memory | None, memory_id: str, project: str | None
) -> tuple[Memory, bool]:
    """The memory that a file describes, in normal form, and whether secrets in it were masked.
    `before` is the memory that the file described earlier. Without a project of its own, the file
    has `project`.

    Who wrote in a file is unknown, so the memory counts as imported, or as less if it did before.
    Raises UsageError if the time of creation or another value is malformed, or the project or the
    namespace contains a secret."""
    created = before.created_at if before else moment(page.created, "created")
    base = before or Memory(text="", project=project, provenance=Provenance(door=IMPORT))
    memory = replace(
        base,
        id=memory_id,
        text=page.text,
        symbols=base.symbols if base.triggers else (),
        trust=base.trust if base.trust in (Trust.AGENT, Trust.TOOL) else Trust.IMPORTED,
        created_at=created,
        updated_at=None,
        content_hash="",
    )
    if page.has_front:
        if redact(f"{page.project}\n{page.namespace}")[1]:
            raise UsageError("its project or namespace contains a secret; take it out")
        memory = replace(
            memory,
            project=os.path.expanduser(page.project) if page.project else project,
            namespace=page.namespace,
            tags=page.tags,
            paths=page.paths,
        )
    result, fired = masked(memory_of(memory))
    check(result)
    return result, bool(fired)


def is_same(left: Memory, right: Memory) -> bool:
    return to_page(left) == to_page(right)


def to_page(memory: Memory) -> str:
    """The file of a memory. Paths that its text names are left out."""
    created = memory.created_at
    implied = tuple(in_project(path, memory.project) for path in paths_in(memory.text))
    fields = {
        "id": memory.id,
        "project": memory.project,
        "namespace": memory.namespace,
        "tags": list(memory.tags),
        "paths": list(memory.paths) if memory.paths != implied or memory.triggers else [],
        "created": created is not None
        and datetime.fromtimestamp(created, UTC).isoformat(timespec="seconds"),
    }
    present = {name: value for name, value in fields.items() if value}
    lines = (f"{name}: {_scalar(value)}\n" for name, value in present.items())
    text = memory.text.replace("\r\n", "\n").strip("\n")
    return f"{_FENCE}{''.join(lines)}{_FENCE}\n{text}\n"


def with_id(raw: str, memory_id: str) -> str:
    """The content of a file, with this id in its front matter and everything else as it was."""
    line = f"id: {_scalar(memory_id)}\n"
    if not raw.startswith(("---\n", "---\r\n")):
        return f"{_FENCE}{line}{_FENCE}\n{raw}"
    first, *lines = raw.splitlines(keepends=True)
    end = next(n for n, each in enumerate(lines) if each.rstrip() == "---")
    front = (each for each in lines[:end] if not each.lower().startswith("id:"))
    return "".join((first, line, *front, *lines[end:]))


def is_new_id(text: str) -> bool:
    """Whether a file may give a new memory this id, which hints show as part of a command."""
    is_plain = text.isascii() and all(char.isalnum() or char in "_.:-" for char in text)
    return is_plain and text[:1].isalnum() and len(text) <= MAX_ID_CHARS and not redact(text)[1]


def name_of(memory: Memory) -> str:
    """A file's name, from the first words of the memory and a hash of its id."""
    text = unicodedata.normalize("NFC", memory.text.strip()[:200]).casefold()
    words = "".join(char if char.isalnum() else " " for char in text).split()
    slug = "-".join(words)[:_MAX_SLUG_CHARS].strip("-")
    return f"{slug or 'memory'}-{hashlib.sha256(memory.id.encode()).hexdigest()[:8]}.md"


def new_id(path: str, raw: str) -> str:
    """The id of a new file. It is the same if the file is read again after a crash."""
    return "f" + hashlib.sha256(json.dumps([path, raw]).encode()).hexdigest()[:19]


def _with_text(page: Page) -> Page:
    text = page.text.strip("\n")
    if not text.strip():
        raise UsageError("it has no text; delete the file to forget the memory")
    return replace(page, text=text)


def _one(fields: dict[str, object], name: str) -> str | None:
    value = fields.get(name)
    if value is None or (isinstance(value, str) and _is_sound(value)):
        return value or None
    raise UsageError(f"{name} in its front matter must be one value")


def _many(fields: dict[str, object], name: str) -> tuple[str, ...]:
    value = fields.get(name) or ""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(
        isinstance(part, str) and _is_sound(part) for part in parts
    ):
        raise UsageError(f"{name} in its front matter must be a list")
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _is_sound(value: str) -> bool:
    return "\0" not in value and is_text(value)


def _scalar(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_quoted, value))}]"
    text = str(value)
    is_plain = text.isascii() and (text[:1] == "/" or text[:1].isalnum())
    is_plain = is_plain and text[-1:].isalnum()
    return text if is_plain and all(c.isalnum() or c in "_-./+:" for c in text) else _quoted(text)


def _quoted(text: str) -> str:
    if text.isascii() and text.replace("-", "").replace("_", "").isalnum() and text[0].isalnum():
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{"".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped)}"'
