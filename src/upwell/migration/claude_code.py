"""Claude Code's own memory files, `~/.claude/projects/PROJECT/memory/*.md`.

Each file holds one memory, with a description and a type in its front matter. `MEMORY.md` links to
the files or holds memories itself. Claude Code loads it into every session. `PROJECT` is the path
of the project with `-` for every character that is not a letter or digit; the transcripts in
`PROJECT` contain the real path. `CLAUDE.md` is left out, because Claude Code loads it by itself.

Sources: Claude Code 2.1 (its documentation of memory; the layout is not documented).
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from upwell.ground.errors import UsageError
from upwell.ground.foreign import read_text
from upwell.ground.project import project_of
from upwell.migration.base import Item, LeftOut, Record, StorePlace, link_out, record, texts
from upwell.migration.front_matter import field, front_and_body

MEMORY = "memory"
INDEX = "MEMORY.md"
MAX_LINES_READ = 200
MAX_LINE_CHARS = 1_000_000
_KINDS = {
    "feedback": "patterns",
    "user": "context",
    "project": "context",
    "reference": "context",
}
_LINK = re.compile(r"\[[^\]]{1,200}\]\([^)\s]{1,200}\.md\)")
_BULLET = "-*•"


class ClaudeCode:
    name = "claude-code"
    usual = "~/.claude/projects/*/memory"

    def stores(self, place: StorePlace) -> list[Path]:
        root = place.folder_named("CLAUDE_CONFIG_DIR", ".claude") / "projects"
        return sorted(folder for folder in root.glob(f"*/{MEMORY}") if any(folder.glob("*.md")))

    def read(self, path: Path, place: StorePlace) -> Iterator[Item]:
        files = [path] if path.is_file() else _files(path)
        if not files:
            raise UsageError(
                f"{path} has no memory files of Claude Code", hint=f"usually {self.usual}"
            )
        projects: dict[Path, str] = {}
        for file in files:
            folder = file.parent
            if path.is_dir() and (left_out := link_out(file, folder)):
                yield left_out
                continue
            projects[folder] = projects.get(folder) or _project(folder)
            try:
                yield from _memories(file, projects[folder])
            except UsageError as error:
                yield LeftOut(error.message, str(file))


def _files(folder: Path) -> list[Path]:
    """The memory files of a project, or of all projects below a folder."""
    folders = [folder, folder / MEMORY, *sorted(folder.glob(f"*/{MEMORY}"))]
    found = [inner for inner in folders if inner.name == MEMORY and inner.is_dir()]
    return [file for inner in found for file in sorted(inner.glob("*.md"))]


def _memories(file: Path, project: str) -> Iterator[Item]:
    text = read_text(file)
    if file.name == INDEX:
        yield from _of_index(file, text, project)
        return
    fields, body = front_and_body(text)
    description = field(fields, "description")
    # A memory's lines may be joined later. The colon then separates the description from the body.
    if description and description[-1] not in ".:!?":
        description += ":"
    parts = [] if description.rstrip(":") in body else [description]
    kind = field(fields, "type", "metadata.type")
    yield _record(
        file,
        file.name,
        "\n".join(filter(None, (*parts, body.strip()))),
        project,
        kind=_KINDS.get(kind, kind or "context"),
        tags=[kind, *texts(fields.get("tags"))],
        session=field(fields, "originsessionid", "metadata.originsessionid"),
    )


def _of_index(file: Path, text: str, project: str) -> Iterator[Item]:
    """Turn the list items in the index into memories that begin with the heading of their section.
    Lines with a link to a file, and lines outside lists, are left out."""
    section = ""
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("#"):
            section = bare.lstrip("# ")
        elif _LINK.search(bare):
            yield LeftOut("a line of the index", bare)
        elif bare[:1] in _BULLET and bare.lstrip(f"{_BULLET} "):
            fact = bare.lstrip(f"{_BULLET} ")
            entry = f"{section}: {fact}" if section else fact
            yield _record(file, f"{INDEX}#{fact}", entry, project, kind="context", tags=[])
        elif bare:
            yield LeftOut("a line of the index", bare)


def _record(
    file: Path,
    name: str,
    text: str,
    project: str,
    *,
    kind: str,
    tags: list[str],
    session: str = "",
) -> Record:
    slug = file.parent.parent.name
    known = project if project.startswith("/") else None
    return record(
        ClaudeCode.name,
        f"{slug}/{name}",
        text,
        kind=kind,
        tags=tags,
        created_at=file.stat().st_mtime,
        project=known,
        project_name="" if known else project,
        session=session,
    )


def _project(folder: Path) -> str:
    """The project's path, from a transcript beside the memory folder. If no transcript has it,
    returns Claude Code's name for the project, which the user can map to a path with `--project`.
    """
    for transcript in sorted(folder.parent.glob("*.jsonl")):
        if cwd := _cwd(transcript):
            return project_of(cwd) or cwd
    return folder.parent.name


def _cwd(transcript: Path) -> str:
    if not transcript.is_file():
        return ""
    try:
        with transcript.open(encoding="utf-8", errors="replace") as file:
            for _ in range(MAX_LINES_READ):
                line = file.readline(MAX_LINE_CHARS)
                if '"cwd"' in line and (cwd := _named_folder(line)):
                    return cwd
                if not line:
                    break
    except OSError:
        pass
    return ""


def _named_folder(line: str) -> str:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    cwd = entry.get("cwd") if isinstance(entry, dict) else None
    return cwd if isinstance(cwd, str) and cwd.startswith("/") else ""
