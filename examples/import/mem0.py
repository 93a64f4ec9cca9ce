"""Print the memories of a mem0 export as JSON lines, for `upwell import`.

python examples/import/mem0.py EXPORT > memories.jsonl
upwell import memories.jsonl

An export is JSON (a list, or an object with `results` or `memories`) or JSON lines. Deleted, paused
and archived memories are left out. The format is that of mem0ai 2.2 (`get_all`, exports).
"""

import hashlib
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

KINDS = {
    **dict.fromkeys(("preferences", "preference", "user_preferences", "rules"), "patterns"),
    **dict.fromkeys(("decision", "decisions", "architecture"), "decisions"),
    **dict.fromkeys(("bug", "error", "learning", "learnings", "troubleshooting"), "learnings"),
    "security": "security",
}
PROJECTS = ("project", "project_path", "repository", "repo", "cwd")
"""The metadata keys that may name a project."""
NO_PROJECT = ("", "unknown-project", "default")
MAX_CHARS = 1_000_000
MILLISECONDS = 100_000_000_000
"""Larger numbers are times in milliseconds."""


def main() -> None:
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    if len(sys.argv) != 2:
        sys.exit("usage: python mem0.py EXPORT > memories.jsonl")
    names: dict[str, None] = {}
    for row in rows(Path(sys.argv[1])):
        if line := line_of(row):
            print(json.dumps(line, ensure_ascii=False))
            names[line["project"] or "/"] = None
    for name in names:
        if not name.startswith("/"):
            print(f"add --project {name}=FOLDER to `upwell import`", file=sys.stderr)


def rows(file: Path) -> list[Any]:
    try:
        text = file.read_text(encoding="utf-8-sig")
        if file.suffix in (".jsonl", ".ndjson"):
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        value = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        sys.exit(f"cannot read {file}: {error}")
    if isinstance(value, dict):
        lists = (value.get(name) for name in ("results", "memories", "data"))
        value = next((each for each in lists if isinstance(each, list)), None)
    if not isinstance(value, list):
        sys.exit(f"{file} is not an export of mem0: a list, or an object with `results`")
    return value


def line_of(row: Any) -> dict[str, Any] | None:
    """The line of a memory; None if it has no text, or is not active in mem0."""
    if not isinstance(row, dict):
        return None
    texts = (string(row.get(name)).strip() for name in ("memory", "content", "text", "data"))
    text = next(filter(None, texts), "")
    state = string(row.get("state")) or "active"
    if not 0 < len(text) <= MAX_CHARS or state.rsplit(".")[-1] != "active":
        return None
    data = metadata(row.get("metadata"))
    categories = [*strings(row.get("categories")), *strings(data.get("category"))]
    kinds = (KINDS[name.lower()] for name in categories if name.lower() in KINDS)
    project = next(filter(None, (string(data.get(name)) for name in PROJECTS)), "")
    owners = (string(row.get("agent_id")), string(row.get("app")))
    name = string(row.get("id")) or text
    return {
        # The id is the same every time, so that a second import adds nothing.
        "id": "m" + hashlib.sha256(json.dumps(["mem0", name]).encode()).hexdigest()[:19],
        "text": text,
        "namespace": next(kinds, "context"),
        "tags": list(filter(None, (*categories, *strings(data.get("tags")), *owners))),
        "paths": strings(data.get("files") or data.get("file_path"))[:50],
        "project": "" if project in NO_PROJECT else project,
        "source": f"mem0:{name}",
        "created_at": seconds(row.get("created_at")),
    }


def metadata(value: object) -> dict[str, Any]:
    """A memory's metadata: an object, or one as JSON in a string."""
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def seconds(value: object) -> float | None:
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value.strip())
            return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
        if isinstance(value, int | float):
            number = value / 1000 if value > MILLISECONDS else value
            return datetime.fromtimestamp(number, UTC).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    return None


def strings(value: object) -> list[str]:
    """The strings in a list, or in a comma-separated string."""
    parts = value.strip("[] ").split(",") if isinstance(value, str) else value
    if not isinstance(parts, list):
        return []
    return list(filter(None, (string(part).strip(" \"'") for part in parts)))


def string(value: object) -> str:
    return value if isinstance(value, str) and "\0" not in value else ""


if __name__ == "__main__":
    main()
