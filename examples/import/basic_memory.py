"""Print the notes of basic-memory as JSON lines, for `upwell import`.

python examples/import/basic_memory.py [FOLDER]... > memories.jsonl
upwell import memories.jsonl

Without a FOLDER, the folders in `~/.basic-memory/config.json` are read. An observation
(`- [decision] Text #tag`) becomes a memory that begins with the note's title. The rest of the note
becomes one more, or one per section if it is long. Tasks are left out. The format is that of
basic-memory 0.24.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

KINDS = {
    **dict.fromkeys(("decision", "design", "architecture", "choice"), "decisions"),
    **dict.fromkeys("rule preference convention pattern practice style".split(), "patterns"),
    **dict.fromkeys("bug issue error fix solution problem gotcha".split(), "learnings"),
    **dict.fromkeys("lesson learning insight tip technique".split(), "learnings"),
    **dict.fromkeys(("config", "configuration", "setup"), "config"),
    **dict.fromkeys(("todo", "status", "progress", "milestone"), "progress"),
    **dict.fromkeys(("debt", "tech-debt", "technical-debt"), "tech-debt"),
    **{name: name for name in ("security", "performance", "testing")},
}
OBSERVATION = re.compile(r"[-*] \[([^\[\]()]{1,60})\] (.+)")
TASKS = (" ", "x", "X", "-")
TAG = re.compile(r"(?<!\S)#([\w][\w/-]*)")
EMPTY_HEADING = re.compile(r"#{1,6} (Observations|Relations)", re.IGNORECASE)
SKIPPED = {".git", ".obsidian", "node_modules", ".trash"}
MAX_CHARS = 2_000
"""Longer notes are split at their `##` headings."""


def main() -> None:
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    folders = [Path(folder) for folder in sys.argv[1:] or configured()]
    if missing := [folder for folder in folders if not folder.is_dir()]:
        sys.exit(f"no folder {missing[0]}")
    for folder in folders:
        for file in sorted(folder.rglob("*.md")):
            name = file.relative_to(folder)
            outside = not file.resolve().is_relative_to(folder.resolve())
            if outside or SKIPPED & set(name.parts):
                continue
            try:
                for line in lines(file, name.as_posix()):
                    print(json.dumps(line, ensure_ascii=False))
            except (OSError, UnicodeDecodeError) as error:
                print(f"left out {file}: {error}", file=sys.stderr)


def configured() -> list[str]:
    config = Path.home() / ".basic-memory" / "config.json"
    try:
        projects = json.loads(config.read_text("utf-8"))["projects"] if config.exists() else {}
        folders = [each["path"] if isinstance(each, dict) else each for each in projects.values()]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        sys.exit(f"cannot read {config}: {error!r}; name the folders")
    # Most Markdown files in the home folder are no notes.
    wide = (Path.home(), *Path.home().parents)
    folders = [folder for folder in folders if Path(folder).resolve() not in wide]
    return folders or [str(Path.home() / "basic-memory")]


def lines(file: Path, name: str) -> Iterator[dict[str, Any]]:
    fields, body = front_matter(file.read_text(encoding="utf-8-sig"))
    # The permalink stays the same if the file is moved.
    name, title = fields.get("permalink") or name, fields.get("title") or file.stem
    parts = (part.strip(" \"'#") for part in fields.get("tags", "").strip("[]").split(","))
    common = {
        "tags": list(filter(None, parts)),
        "project": repository(file),
        "created_at": seconds(fields.get("created") or fields.get("date")) or file.stat().st_mtime,
    }
    prose = []
    for line in body.splitlines():
        found = OBSERVATION.fullmatch(line.strip())
        if found is None and not EMPTY_HEADING.fullmatch(line.strip()):
            prose.append(line)
        elif found and found[1] not in TASKS:
            category, text = found[1].strip(), found[2].strip()
            tags = [category, *TAG.findall(text), *common["tags"]]
            text = re.sub(r"(\s#[\w][\w/-]*)+(?=\s\([^()]*\)$|$)", "", text)
            where = f"{name}#{category}: {found[2].strip()}"
            kind = KINDS.get(category.lower(), "context")
            yield line_of(where, f"{title}: {text}", kind, {**common, "tags": tags})
    text = "\n".join(line for line in prose if line.strip() != f"# {title}").strip()
    kind = KINDS.get(fields.get("type", "").lower(), "context")
    for heading, part in sections(text):
        yield line_of(f"{name}#{heading}" if heading else name, f"{title}\n{part}", kind, common)


def sections(text: str) -> Iterator[tuple[str, str]]:
    """The whole note or, if it is long, its sections with their headings."""
    parts: dict[str, list[str]] = {"": []}
    heading, is_code = "", False
    for line in text.splitlines():
        is_code ^= line.lstrip().startswith("```")
        if len(text) > MAX_CHARS and line.startswith("## ") and not is_code:
            heading = line.removeprefix("## ").strip()
        parts.setdefault(heading, []).append(line)
    for heading, part in parts.items():
        if whole := "\n".join(part).strip():
            yield heading, whole


def front_matter(text: str) -> tuple[dict[str, str], str]:
    """The fields of the front matter, lists joined with commas, and the text below it."""
    head, fence, body = f"{text}\n"[3:].partition("\n---\n")
    if not text.startswith("---\n") or not fence:
        return {}, text
    fields: dict[str, str] = {}
    key = ""
    for line in head.splitlines():
        name, colon, value = line.partition(":")
        if line.strip().startswith("- "):
            fields[key] = f"{fields.get(key, '')},{line.strip()[2:]}"
        elif colon and not line[:1].isspace():
            key = name.strip().lower()
            fields[key] = value.strip().strip("\"'")
    return fields, body


def line_of(name: str, text: str, kind: str, common: dict[str, Any]) -> dict[str, Any]:
    identity = json.dumps(["basic-memory", name])
    # The id is the same every time, so that a second import adds nothing.
    number = "m" + hashlib.sha256(identity.encode()).hexdigest()[:19]
    line = {"id": number, "text": text.strip(), "namespace": kind, **common}
    return {**line, "source": f"basic-memory:{name}"}


def seconds(value: str | None) -> float | None:
    try:
        time = datetime.fromisoformat(value or "")
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def repository(file: Path) -> str:
    folders = file.resolve().parents
    return next((str(folder) for folder in folders if (folder / ".git").exists()), "")


if __name__ == "__main__":
    main()
