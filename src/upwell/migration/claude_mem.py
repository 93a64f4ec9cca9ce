"""The SQLite database of claude-mem, `~/.claude-mem/claude-mem.db`.

An observation has a type, a title, a narrative, facts (a JSON list) and files. A session has a
summary. Both give only the name of their repository's folder, not its path. The database of
claude-mem's server also contains memories that people added (`memory_items`), with the paths of
their projects.

Sources: the schema of claude-mem 13.25 (`SessionStore`, `storage/sqlite/schema`) and its mode
`code`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from upwell.ground.errors import UsageError
from upwell.ground.sqlite.foreign import ForeignDatabase, foreign_database
from upwell.migration.base import Item, LeftOut, Place, Record, record, string, texts

_KINDS = {
    "decision": "decisions",
    "bugfix": "learnings",
    "discovery": "context",
    "feature": "progress",
    "refactor": "progress",
    "change": "progress",
    "security_alert": "security",
    "security_note": "security",
}
_KINDS_OF_CONCEPTS = {
    "gotcha": "learnings",
    "problem-solution": "learnings",
    "trade-off": "decisions",
    "pattern": "patterns",
}
_OPEN_TYPES = ("discovery", "change")
"""For these vague types, the first known concept determines the kind."""
_SENSITIVE = "sensitive"
_MANUAL = (
    "SELECT item.*, project.root_path FROM memory_items AS item "
    "JOIN projects AS project ON project.id = item.project_id "
    "WHERE item.legacy_observation_id IS NULL AND item.kind IN ('observation', 'manual') "
    "ORDER BY item.rowid"
)
_DETAILS = {"text", "narrative", "facts"}


class ClaudeMem:
    name = "claude-mem"
    usual = "~/.claude-mem/claude-mem.db"

    def stores(self, place: Place) -> list[Path]:
        path = place.folder_named("CLAUDE_MEM_DATA_DIR", ".claude-mem") / "claude-mem.db"
        return [path] if path.is_file() else []

    def read(self, path: Path, place: Place) -> Iterator[Item]:
        file = path / "claude-mem.db" if path.is_dir() else path
        with foreign_database(file) as database:
            if not database.columns("observations") >= {"id", "type", "project"}:
                raise UsageError(
                    f"{file} is not a database of claude-mem", hint=f"usually {self.usual}"
                )
            for row in database.rows("SELECT * FROM observations ORDER BY rowid"):
                yield _observation(row, f"observation/{row['id']}")
            if database.columns("session_summaries") >= {"id", "learned", "completed"}:
                for row in database.rows("SELECT * FROM session_summaries ORDER BY rowid"):
                    yield _summary(row)
            yield from _manual(database)
            yield from _prompts(database)


def _observation(row: dict[str, Any], record_id: str) -> Item:
    type_ = string(row["type"])
    if type_ == _SENSITIVE:
        return LeftOut("marked as sensitive", string(row.get("title")))
    concepts = texts(row.get("concepts"))
    title, subtitle = string(row.get("title")), string(row.get("subtitle"))
    story = string(row.get("narrative")) or string(row.get("text")) or subtitle
    facts = [f"- {fact}" for fact in texts(row.get("facts"))]
    return _record_of(
        row,
        record_id,
        "\n".join(filter(None, (title, story, *facts))),
        kind=_kind(type_, concepts),
        tags=[type_, *concepts],
        paths=[*texts(row.get("files_modified")), *texts(row.get("files_read"))],
    )


def _summary(row: dict[str, Any]) -> Item:
    parts = [string(row.get(name)) for name in ("learned", "completed", "next_steps", "notes")]
    if not any(parts[:2]):
        return LeftOut("a summary without a result", string(row.get("request")))
    return _record_of(
        row,
        f"summary/{row['id']}",
        "\n".join(filter(None, (string(row.get("request")), *parts))),
        kind="learnings" if parts[0] else "progress",
        tags=["session-summary"],
        paths=texts(row.get("files_edited")),
    )


def _record_of(
    row: dict[str, Any], record_id: str, text: str, *, kind: str, tags: list[str], paths: list[str]
) -> Record:
    root = string(row.get("root_path"))
    return record(
        ClaudeMem.name,
        record_id,
        text,
        kind=kind,
        tags=tags,
        paths=paths,
        created_at=row.get("created_at_epoch") or row.get("created_at"),
        project=root if root.startswith("/") else None,
        project_name="" if root else string(row.get("project")),
        session=string(row.get("memory_session_id")),
    )


def _kind(type_: str, concepts: list[str]) -> str:
    telling = [_KINDS_OF_CONCEPTS[name] for name in concepts if name in _KINDS_OF_CONCEPTS]
    if type_ in _OPEN_TYPES and telling:
        return telling[0]
    return _KINDS.get(type_, "context")


def _manual(database: ForeignDatabase) -> Iterator[Item]:
    if database.columns("memory_items") >= {"id", "kind", "project_id", *_DETAILS}:
        for row in database.rows(_MANUAL):
            yield _observation(row, f"item/{row['id']}")


def _prompts(database: ForeignDatabase) -> Iterator[Item]:
    """Leave out prompts, because the agent's own transcripts already contain them."""
    if database.columns("user_prompts"):
        (row,) = database.rows("SELECT count(*) AS count FROM user_prompts")
        if row["count"]:
            yield LeftOut("a prompt, not a memory", count=row["count"])
