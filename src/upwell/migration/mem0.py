"""mem0 and OpenMemory: JSON exports, `history.db` of a local mem0, and `openmemory.db`.

An export is a list of memories, or an object with `results` or `memories`. OpenMemory exports a zip
file with JSON and JSON lines. `history.db` holds every change to every memory, and the last change
has the current text. A local Qdrant beside it is not read, because it holds pickled Python objects,
which could run code.

Sources: mem0ai 2.2 (`memory/storage`, `get_all`), OpenMemory (`models`, `routers/backup`), and the
documentation of exports.
"""

import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from upwell.ground.errors import UsageError
from upwell.ground.foreign import MAX_FILE_BYTES, parsed_json, read_text, too_large
from upwell.ground.sqlite.foreign import ForeignDatabase, foreign_database, is_database
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

_FILES = ("history.db", "openmemory.db", "memories.json")
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    lzma.LZMAError,
    zlib.error,
    zipfile.BadZipFile,
)
"""What reading a damaged, encrypted or unsupported archive can raise."""
_LISTS = ("results", "memories", "data")
_TEXTS = ("memory", "content", "text", "data")
_CHANGES = """
SELECT memory_id AS id, new_memory AS memory, event, is_deleted, actor_id,
       coalesce(created_at, updated_at) AS created_at,
       coalesce(updated_at, created_at) AS updated_at
FROM history ORDER BY rowid
"""
_OPEN_MEMORY = """
SELECT memories.*, apps.name AS app,
       (SELECT group_concat(categories.name) FROM memory_categories
        JOIN categories ON categories.id = memory_categories.category_id
        WHERE memory_categories.memory_id = memories.id) AS categories
FROM memories LEFT JOIN apps ON apps.id = memories.app_id ORDER BY memories.rowid
"""
_KINDS = {
    **dict.fromkeys(("preferences", "preference", "user_preferences", "rules"), "patterns"),
    **dict.fromkeys(("decision", "decisions", "architecture"), "decisions"),
    **dict.fromkeys(("bug", "error", "learning", "learnings", "troubleshooting"), "learnings"),
    **dict.fromkeys(("security",), "security"),
}


class Mem0:
    name = "mem0"
    usual = "~/.mem0/history.db, or an export: give its path"

    def stores(self, place: Place) -> list[Path]:
        folder = place.folder_named("MEM0_DIR", ".mem0")
        return [folder / name for name in _FILES if (folder / name).is_file()]

    def read(self, path: Path, place: Place) -> Iterator[Item]:
        found = [path / name for name in _FILES if (path / name).is_file()]
        if path.is_dir() and not found:
            raise UsageError(f"{path} has no memories of mem0", hint=f"usually {self.usual}")
        for file in found or [path]:
            if is_database(file):
                yield from _database(file)
            else:
                yield from map(_memory, _exported(file))


def _database(file: Path) -> Iterator[Item]:
    with foreign_database(file) as database:
        if database.columns("history") >= {"memory_id", "new_memory", "event", "is_deleted"}:
            yield from map(_memory, _last_changes(database))
        elif database.columns("memories") >= {"id", "content", "state"}:
            yield from map(_memory, database.rows(_OPEN_MEMORY))
        else:
            raise UsageError(f"{file} is not a database of mem0", hint="history.db, openmemory.db")


def _last_changes(database: ForeignDatabase) -> Iterable[Mapping[str, Any]]:
    """The last change to each memory. If this change deleted the memory, `state` is "deleted"."""
    last: dict[str, Mapping[str, Any]] = {}
    for row in database.rows(_CHANGES):
        deleted = row["is_deleted"] or row["event"] == "DELETE"
        first = last.get(row["id"], row)
        last[row["id"]] = {
            **row,
            "created_at": first["created_at"],
            "state": "deleted" if deleted else "active",
        }
    return last.values()


def _exported(file: Path) -> Iterator[Any]:
    if zipfile.is_zipfile(file):
        yield from _zipped(file)
        return
    text = read_text(file)
    if file.suffix in (".jsonl", ".ndjson"):
        yield from (parsed_json(line, file) for line in text.splitlines() if line.strip())
        return
    yield from _listed(parsed_json(text, file), file)


def _listed(value: Any, file: Path) -> Iterable[Any]:
    if isinstance(value, Mapping):
        value = next((value[name] for name in _LISTS if isinstance(value.get(name), list)), None)
    if not isinstance(value, list):
        raise UsageError(
            f"{file} is not an export of mem0", hint="a JSON list, or an object with `results`"
        )
    return value


def _zipped(file: Path) -> Iterator[Any]:
    """The memories in OpenMemory's export. JSON lines are preferred, because they include the names
    of apps and categories.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            names = {name.rsplit("/", 1)[-1]: name for name in archive.namelist()}
            if "memories.jsonl.gz" in names:
                packed = _bounded(archive.open(names["memories.jsonl.gz"]), file)
                unpacked = gzip.GzipFile(fileobj=io.BytesIO(packed))
                text = _bounded(unpacked, file).decode("utf-8", "replace")
                yield from (parsed_json(line, file) for line in text.splitlines() if line.strip())
                return
            if "memories.json" in names:
                raw = _bounded(archive.open(names["memories.json"]), file)
                yield from _listed(parsed_json(raw.decode("utf-8", "replace"), file), file)
                return
    except _DAMAGE as error:
        raise UsageError(f"cannot read {file}: {error}") from error
    raise UsageError(f"{file} is not an export of OpenMemory", hint="it has no memories.json")


def _bounded(stream: Any, file: Path) -> bytes:
    with stream:
        content: bytes = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise too_large(file, MAX_FILE_BYTES)
    return content


def _memory(row: Any) -> Item:
    if not isinstance(row, Mapping):
        return LeftOut("unreadable", str(row))
    text = next((value for name in _TEXTS if (value := string(row.get(name)))), "")
    state = string(row.get("state")) or "active"
    if state.rsplit(".")[-1] != "active":
        return LeftOut(f"{state} there", text)
    metadata = metadata_of(row.get("metadata"))
    categories = texts(row.get("categories")) + texts(metadata.get("category"))
    owners = [string(row.get(name)) for name in ("user_id", "agent_id", "app", "app_id")]
    project, name = project_in(metadata)
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
