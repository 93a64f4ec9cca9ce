"""Print the memory files of Claude Code as JSON lines, for `upwell import`.

python examples/import/claude_code.py [FOLDER] > memories.jsonl
upwell import memories.jsonl

FOLDER is `~/.claude/projects` or the `memory` folder of one project. Each file is a memory, and so
is each list item of `MEMORY.md` without a link. The project is the folder in the transcripts beside
the memory folder. The layout is that of Claude Code 2.1; it is not documented.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

LINK = re.compile(r"\[[^\]]{1,200}\]\([^)\s]{1,200}\.md\)")
BULLETS = "-*•"
MAX_LINES_READ = 200
MAX_LINE_CHARS = 1_000_000


def main() -> None:
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    default = Path.home() / ".claude" / "projects"
    folder = Path(sys.argv[1] if sys.argv[1:] else default).resolve()
    inner = [folder] if folder.name == "memory" else sorted(folder.glob("*/memory"))
    if not any(memory.is_dir() for memory in inner):
        sys.exit(f"no memory folder of Claude Code in {folder}")
    for memory in inner:
        project = project_of(memory)
        files = [file for file in sorted(memory.glob("*.md")) if file.resolve().parent == memory]
        for file in files:
            try:
                for line in lines(file, project):
                    print(json.dumps(line, ensure_ascii=False))
            except (OSError, UnicodeDecodeError) as error:
                print(f"left out {file}: {error}", file=sys.stderr)
        if files and not project.startswith("/"):
            print(f"add --project={project}=FOLDER to `upwell import`", file=sys.stderr)


def lines(file: Path, project: str) -> Iterator[dict[str, Any]]:
    text = file.read_text(encoding="utf-8-sig")
    if file.name == "MEMORY.md":
        section = ""
        for bare in map(str.strip, text.splitlines()):
            fact = bare.lstrip(f"{BULLETS} ")
            if bare.startswith("#"):
                section = bare.lstrip("# ")
            elif fact and bare[0] in BULLETS and not LINK.search(bare):
                entry = f"{section}: {fact}" if section else fact
                yield line_of(file, f"MEMORY.md#{fact}", entry, project)
        return
    fields, body = front_matter(text)
    description = fields.get("description", "")
    if description and description[-1] not in ".:!?":
        description += ":"
    whole = body if description.rstrip(":") in body else f"{description}\n{body}"
    if whole.strip():
        yield line_of(file, file.name, whole, project, fields.get("type", ""))


def front_matter(text: str) -> tuple[dict[str, str], str]:
    """The fields of the front matter, which is nearly YAML, and the text below it. A field of
    `metadata:` counts as a field of the whole."""
    head, fence, body = f"{text}\n"[3:].partition("\n---\n")
    if not text.startswith("---\n") or not fence:
        return {}, text
    fields: dict[str, str] = {}
    key = ""
    for line in head.splitlines():
        name, colon, value = line.partition(":")
        if line[:1].isspace() and fields.get(key):
            fields[key] = re.sub("^[>|][+-]? ", "", f"{fields[key]} {line.strip()}")
        elif colon:
            key = name.strip().lower() if not line[:1].isspace() else key
            fields[name.strip().lower()] = value.strip().strip("\"'")
    return fields, body.strip()


def line_of(file: Path, name: str, text: str, project: str, kind: str = "") -> dict[str, Any]:
    name = f"{file.parent.parent.name}/{name}"
    identity = json.dumps(["claude-code", name])
    return {
        # The id is the same every time, so that a second import adds nothing.
        "id": "m" + hashlib.sha256(identity.encode()).hexdigest()[:19],
        "text": text.strip(),
        "namespace": "patterns" if kind == "feedback" else "context",
        "tags": [kind] if kind else [],
        "project": project,
        "source": f"claude-code:{name}",
        "created_at": file.stat().st_mtime,
    }


def project_of(memory: Path) -> str:
    """The repository around the working directory in a transcript. Without a transcript it is
    Claude Code's name for the project."""
    for transcript in sorted(memory.parent.glob("*.jsonl")):
        with transcript.open(encoding="utf-8", errors="replace") as file:
            for line in islice(iter(lambda: file.readline(MAX_LINE_CHARS), ""), MAX_LINES_READ):
                if '"cwd"' in line and (cwd := cwd_in(line)):
                    folders = (Path(cwd), *Path(cwd).parents)
                    return next((str(each) for each in folders if (each / ".git").exists()), cwd)
    return memory.parent.name


def cwd_in(line: str) -> str:
    try:
        entry = json.loads(line)
    except ValueError:
        return ""
    cwd = entry.get("cwd") if isinstance(entry, dict) else None
    return cwd if isinstance(cwd, str) and cwd.startswith("/") else ""


if __name__ == "__main__":
    main()
