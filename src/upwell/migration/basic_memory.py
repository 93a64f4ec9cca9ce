"""The notes of basic-memory: Markdown files with front matter, observations and relations.

An observation (`- [decision] Text #tag (context)`) becomes a memory that begins with the note's
title. Its category (`decision`) determines the kind of the memory. The rest of the note, with its
relations, becomes one memory, or one per section if it is long. Tasks are left out.
`~/.basic-memory/config.json` lists the folders of the projects.

Sources: basic-memory 0.24 (`markdown/plugins`, `config`) and its documentation of the format.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from upwell.ground.errors import UsageError
from upwell.ground.foreign import read_json, read_text
from upwell.ground.project import repository_of
from upwell.migration.base import Item, LeftOut, Record, StorePlace, link_out, record
from upwell.migration.front_matter import Fields, field, front_and_body, items

_KINDS = {
    **dict.fromkeys(("decision", "design", "architecture", "choice"), "decisions"),
    **dict.fromkeys(
        ("rule", "preference", "convention", "pattern", "practice", "style"), "patterns"
    ),
    **dict.fromkeys(("bug", "issue", "error", "fix", "solution", "problem"), "learnings"),
    **dict.fromkeys(("gotcha", "lesson", "learning", "insight", "tip", "technique"), "learnings"),
    **dict.fromkeys(("config", "configuration", "setup"), "config"),
    **dict.fromkeys(("todo", "status", "progress", "milestone"), "progress"),
    **dict.fromkeys(("debt", "tech-debt", "technical-debt"), "tech-debt"),
    **dict.fromkeys(("security", "performance", "testing"), ""),
}
MAX_WHOLE_CHARS = 2_000
"""Longer notes are split at their `##` headings."""
_OBSERVATION = re.compile(r"[-*] \[(?P<category>[^\[\]()]{1,60})\] (?P<text>.+)")
_TASKS = (" ", "x", "X", "-")
_TAG = re.compile(r"(?<!\S)#([\w][\w/-]*)")
_EMPTY_HEADING = re.compile(r"#{1,6} (Observations|Relations)", re.IGNORECASE)
_SKIPPED = {".git", ".obsidian", "node_modules", ".trash"}


class _Note(Struct, frozen=True):
    """What all memories from one note share. `name` is part of their ids."""

    name: str
    title: str
    tags: list[str]
    kind: str
    created_at: object
    updated_at: object
    project: str | None


class BasicMemory:
    name = "basic-memory"
    usual = "the folders in ~/.basic-memory/config.json"

    def stores(self, place: StorePlace) -> list[Path]:
        config = place.folder_named("BASIC_MEMORY_CONFIG_DIR", ".basic-memory") / "config.json"
        try:
            folders = _folders(read_json(config)) if config.is_file() else []
        except UsageError:
            folders = []
        home = place.folder_named("BASIC_MEMORY_HOME", "basic-memory")
        present = dict.fromkeys(path for path in (*folders, home) if path.is_dir())
        return [path for path in present if _may_be_searched(path, place) and any(_files(path))]

    def read(self, path: Path, place: StorePlace) -> Iterator[Item]:
        files = [path] if path.is_file() else sorted(_files(path))
        if not files:
            raise UsageError(f"{path} has no notes of basic-memory", hint=f"usually {self.usual}")
        root = path if path.is_dir() else path.parent
        for file in files:
            if path.is_dir() and (left_out := link_out(file, root)):
                yield left_out
                continue
            try:
                yield from _memories(file, file.relative_to(root).as_posix())
            except UsageError as error:
                yield LeftOut(error.message, str(file))


def _may_be_searched(folder: Path, place: StorePlace) -> bool:
    """False for the home folder and its parents, where most Markdown files are not notes."""
    user = place.user_folder.resolve()
    return folder.resolve() not in (user, *user.parents)


def _folders(config: Any) -> list[Path]:
    projects = config.get("projects") if isinstance(config, Mapping) else None
    values = projects.values() if isinstance(projects, Mapping) else ()
    paths = (value.get("path") if isinstance(value, Mapping) else value for value in values)
    return [Path(os.path.expanduser(path)) for path in paths if isinstance(path, str) and path]


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*.md"):
        if not _SKIPPED & set(path.relative_to(folder).parts):
            yield path


def _memories(file: Path, name: str) -> Iterator[Item]:
    fields, body = front_and_body(read_text(file))
    note = _note(file, name, fields)
    prose: list[str] = []
    for line in body.splitlines():
        match = _OBSERVATION.fullmatch(line.strip())
        if match is None:
            prose.append(line)
        elif match["category"] in _TASKS:
            yield LeftOut("a task", line)
        else:
            yield _observation(note, match["category"].strip(), match["text"].strip())
    text = _without_empty_headings(prose, note.title)
    for heading, part in _parts(text):
        record_id = f"{note.name}#{heading}" if heading else note.name
        yield _record_of(note, record_id, f"{note.title}\n{part}", note.kind, note.tags)


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """The whole note or, if it is long, its sections with their headings. Sections with the same
    heading are joined."""
    if len(text) <= MAX_WHOLE_CHARS:
        yield from [("", text)] if text else []
        return
    sections: dict[str, list[str]] = {"": []}
    heading, is_code = "", False
    for line in text.splitlines():
        is_code ^= line.lstrip().startswith("```")
        if line.startswith("## ") and not is_code:
            heading = line.removeprefix("## ").strip()
        sections.setdefault(heading, []).append(line)
    for heading, lines in sections.items():
        if part := "\n".join(lines).strip():
            yield heading, part


def _note(file: Path, name: str, fields: Fields) -> _Note:
    status = file.stat()
    type_ = field(fields, "type").lower()
    return _Note(
        # The permalink stays the same if the file is moved.
        name=field(fields, "permalink") or name,
        title=field(fields, "title") or file.stem,
        tags=[tag.lstrip("#") for tag in items(fields, "tags")],
        kind=_kind(type_),
        created_at=field(fields, "created", "date") or status.st_mtime,
        updated_at=field(fields, "modified", "updated") or status.st_mtime,
        project=repository_of(str(file.parent.resolve())),
    )


def _observation(note: _Note, category: str, text: str) -> Record:
    return _record_of(
        note,
        f"{note.name}#{category}: {text}",
        f"{note.title}: {_without_last_tags(text)}",
        _kind(category.lower()),
        [category, *_TAG.findall(text), *note.tags],
    )


def _without_last_tags(text: str) -> str:
    """The text without the tags at its end. A context in brackets after the tags is kept."""
    start = text.rfind("(") if text.endswith(")") else len(text)
    words = text[:start].split()
    while words and words[-1].startswith("#"):
        words.pop()
    return " ".join((*words, *text[start:].split()))


def _record_of(note: _Note, record_id: str, text: str, kind: str, tags: list[str]) -> Record:
    return record(
        BasicMemory.name,
        record_id,
        text,
        kind=kind,
        tags=tags,
        created_at=note.created_at,
        updated_at=note.updated_at,
        project=note.project,
    )


def _kind(category: str) -> str:
    return _KINDS.get(category, "context") or category


def _without_empty_headings(lines: list[str], title: str) -> str:
    """The prose of a note without its title, which is stored separately, and without the headings
    of its observations and relations."""
    rest = [line for line in lines if not _EMPTY_HEADING.fullmatch(line.strip())]
    return "\n".join(line for line in rest if line.strip() != f"# {title}").strip()
