"""The SQLite database of mcp-memory-service, `sqlite_vec.db`.

A row of `memories` has a text, comma-separated tags, a type and timestamps. The other tables, which
hold the vectors, are not read. The project comes from a tag `project:NAME` or from the metadata.

Sources: the schema and the types of mcp-memory-service 12.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from upwell.ground.errors import UsageError
from upwell.ground.sqlite.foreign import foreign_database
from upwell.migration.base import (
    Item,
    LeftOut,
    Place,
    metadata_of,
    project_in,
    record,
    string,
    texts,
)

_FILE = "sqlite_vec.db"
_VARIABLES = ("MCP_MEMORY_SQLITE_PATH", "MCP_MEMORY_SQLITEVEC_PATH")
_PROJECT_TAG = "project:"
_KINDS = {
    **dict.fromkeys(("decision", "architecture", "tool_choice", "approach"), "decisions"),
    **dict.fromkeys(("configuration", "config"), "config"),
    **dict.fromkeys(
        ("learning", "insight", "best_practice", "gotcha", "anti_pattern"), "learnings"
    ),
    **dict.fromkeys(("error", "bug", "failure", "exception", "timeout", "mistake"), "learnings"),
    **dict.fromkeys(("pattern", "recurring_issue", "design_pattern", "workflow"), "patterns"),
    **dict.fromkeys(("user_correction", "preference_signal", "preference"), "patterns"),
    **dict.fromkeys(("code_smell", "technical_debt"), "tech-debt"),
    **dict.fromkeys(("planning", "milestone", "task", "session"), "progress"),
    **dict.fromkeys(("security", "security_note"), "security"),
}


class McpMemoryService:
    name = "mcp-memory-service"
    usual = f"its data folder, {_FILE}"

    def stores(self, place: Place) -> list[Path]:
        named = [place.environment[name] for name in _VARIABLES if place.environment.get(name)]
        usual = place.folder_named("MCP_MEMORY_BASE_DIR", _usual_folder()) / _FILE
        files = [Path(os.path.expanduser(named[0])) if named else usual]
        return [file for file in files if file.is_file()]

    def read(self, path: Path, place: Place) -> Iterator[Item]:
        file = path / _FILE if path.is_dir() else path
        with foreign_database(file) as database:
            if not database.columns("memories") >= {"content_hash", "content", "memory_type"}:
                raise UsageError(
                    f"{file} is not a database of mcp-memory-service", hint=f"usually {self.usual}"
                )
            for row in database.rows("SELECT * FROM memories ORDER BY rowid"):
                yield _memory(row)


def _memory(row: dict[str, Any]) -> Item:
    if row.get("deleted_at"):
        return LeftOut("deleted there", string(row["content"]))
    if row.get("superseded_by"):
        return LeftOut("superseded there", string(row["content"]))
    metadata, tags = metadata_of(row.get("metadata")), texts(row.get("tags"))
    named = [tag.removeprefix(_PROJECT_TAG) for tag in tags if tag.startswith(_PROJECT_TAG)]
    project, name = project_in(metadata)
    kind = string(row.get("memory_type")).lower()
    return record(
        McpMemoryService.name,
        str(row["content_hash"]),
        string(row["content"]),
        kind=_KINDS.get(kind, "context"),
        tags=[*tags, kind],
        paths=texts(metadata.get("files") or metadata.get("file_path")),
        created_at=row.get("created_at") or row.get("created_at_iso"),
        updated_at=row.get("updated_at") or row.get("updated_at_iso"),
        project=project,
        project_name="" if project else next(iter(named), name),
        session=string(metadata.get("session_id")),
    )


def _usual_folder() -> str:
    if sys.platform == "darwin":
        return "Library/Application Support/mcp-memory"
    return ".local/share/mcp-memory"
