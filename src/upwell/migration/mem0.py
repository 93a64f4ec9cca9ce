"""mem0: an export in JSON or JSON lines.

An export is a list of memories, or an object with `results` or `memories`.

Sources: mem0ai 2.2 (`get_all`) and the documentation of exports.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from upwell.ground.errors import UsageError
from upwell.ground.foreign import parsed_json, read_text
from upwell.migration.base import (
    Item,
    LeftOut,
    StorePlace,
    record,
    string,
    texts,
)

_FILE = "memories.json"
_PROJECTS = ("project", "project_path", "repository", "repo", "cwd")
"""The metadata keys that may name a project."""
_LISTS = ("results", "memories", "data")
_TEXTS = ("memory", "content", "text", "data")
_KINDS = {
    **dict.fromkeys(("preferences", "preference", "user_preferences", "rules"), "patterns"),
    **dict.fromkeys(("decision", "decisions", "architecture"), "decisions"),
    **dict.fromkeys(("bug", "error", "learning", "learnings", "troubleshooting"), "learnings"),
    **dict.fromkeys(("security",), "security"),
}


class Mem0:
    name = "mem0"
    usual = "an export in JSON: give its path"

    def stores(self, place: StorePlace) -> list[Path]:
        file = place.folder_named("MEM0_DIR", ".mem0") / _FILE
        return [file] if file.is_file() else []

    def read(self, path: Path, place: StorePlace) -> Iterator[Item]:
        file = path / _FILE if path.is_dir() else path
        if not file.exists():
            raise UsageError(f"{path} has no export of mem0", hint=f"usually {self.usual}")
        text = read_text(file)
        if file.suffix in (".jsonl", ".ndjson"):
            lines = filter(str.strip, text.splitlines())
            yield from (_memory(parsed_json(line, file)) for line in lines)
        else:
            yield from map(_memory, _listed(parsed_json(text, file), file))


def _listed(value: Any, file: Path) -> Iterable[Any]:
    if isinstance(value, Mapping):
        value = next((value[name] for name in _LISTS if isinstance(value.get(name), list)), None)
    if not isinstance(value, list):
        raise UsageError(
            f"{file} is not an export of mem0", hint="a JSON list, or an object with `results`"
        )
    return value


def _memory(row: Any) -> Item:
    if not isinstance(row, Mapping):
        return LeftOut("unreadable", str(row))
    text = next((value for name in _TEXTS if (value := string(row.get(name)))), "")
    state = string(row.get("state")) or "active"
    if state.rsplit(".")[-1] != "active":
        return LeftOut(f"{state} there", text)
    metadata = _metadata_of(row.get("metadata"))
    categories = texts(row.get("categories")) + texts(metadata.get("category"))
    owners = [string(row.get(name)) for name in ("user_id", "agent_id", "app", "app_id")]
    project, name = _project_in(metadata)
    kinds = (_KINDS[it.lower()] for it in categories if it.lower() in _KINDS)
    return record(
        Mem0.name,
        string(row.get("id")) or text,
        text,
        kind=next(kinds, "context"),
        tags=[*categories, *texts(metadata.get("tags")), *owners[1:3]],
        paths=texts(metadata.get("files") or metadata.get("file_path")),
        created_at=row.get("created_at"),
        updated_at=row.get("updated_at"),
        project=project,
        project_name=name,
        session=string(row.get("run_id")),
    )


def _metadata_of(value: object) -> Mapping[str, Any]:
    """A memory's metadata, from a mapping or a JSON object in a string; otherwise empty."""
    if isinstance(value, str) and value:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def _project_in(metadata: Mapping[str, Any]) -> tuple[str | None, str]:
    """`(folder, "")` if the metadata gives the project's folder, `(None, name)` if it gives only
    the project's name, and `(None, "")` if it gives neither."""
    stated = [string(metadata.get(name)) for name in _PROJECTS]
    for value in filter(None, stated):
        return (value, "") if value.startswith("/") else (None, value)
    return None, ""
