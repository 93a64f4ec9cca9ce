"""mem0 and OpenMemory: exports and databases, built by the documented formats.

`test_moving_in_real` has a history that mem0 itself wrote.
"""

import gzip
import json
import zipfile
from pathlib import Path

import pytest
from tests.unit.migration.reading import (
    EPOCH,
    database,
    items_of,
    left_out_of,
    memories_of,
    place_at,
)

from upwell.ground.errors import UsageError
from upwell.migration.base import Record
from upwell.migration.registry import program_named

HISTORY = """
CREATE TABLE history (
  id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT,
  created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT);
"""
OPEN_MEMORY = """
CREATE TABLE apps (id TEXT, name TEXT);
CREATE TABLE memories (
  id TEXT, user_id TEXT, app_id TEXT, content TEXT, metadata TEXT, state TEXT, created_at DATETIME,
  updated_at DATETIME);
CREATE TABLE categories (id TEXT, name TEXT);
CREATE TABLE memory_categories (memory_id TEXT, category_id TEXT);
"""
RESULT = {
    "id": "u1",
    "memory": "Prefers tabs",
    "user_id": "ann",
    "agent_id": "coder",
    "run_id": "r1",
    "metadata": {"project": "/code/shop", "tags": ["style"]},
    "categories": ["preferences"],
    "created_at": "2025-07-20T12:00:00+00:00",
    "updated_at": None,
}


def export(folder: Path, value: object, name: str = "export.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize("whole", [[RESULT], {"results": [RESULT]}, {"memories": [RESULT]}])
def test_an_export_is_read_with_its_provenance(tmp_path: Path, whole: object) -> None:
    (memory,) = memories_of("mem0", export(tmp_path, whole))
    assert (memory.text, memory.namespace) == ("Prefers tabs", "patterns")
    assert memory.tags == ("preferences", "style", "coder")
    assert (memory.project, memory.created_at) == ("/code/shop", EPOCH)
    assert (memory.source, memory.provenance.session) == ("mem0:u1", "r1")


def test_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    path.write_text(f"{json.dumps(RESULT)}\n\n{json.dumps({**RESULT, 'id': 'u2'})}\n")
    assert len(memories_of("mem0", path)) == 2


def open_memory_row(state: str = "active") -> dict[str, object]:
    return {"id": f"m-{state}", "content": f"Is {state}", "state": state, "app": "cursor"}


def test_the_zip_of_open_memory(tmp_path: Path) -> None:
    rows = [open_memory_row(), open_memory_row("archived")]
    lines = "\n".join(json.dumps({**row, "categories": ["architecture"]}) for row in rows)
    path = tmp_path / "memories_export_ann.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("memories.json", json.dumps({"memories": rows}))
        archive.writestr("memories.jsonl.gz", gzip.compress(lines.encode()))
    (memory,) = memories_of("mem0", path)
    assert (memory.text, memory.namespace) == ("Is active", "decisions")
    assert memory.tags == ("architecture", "cursor")
    assert left_out_of("mem0", path) == ["archived there"]


def test_the_last_change_of_each_memory_counts(tmp_path: Path) -> None:
    def change(number: int, memory_id: str, text: str | None, event: str) -> dict[str, object]:
        return {
            "id": f"h{number}",
            "memory_id": memory_id,
            "new_memory": text,
            "event": event,
            "created_at": "2025-07-20T12:00:00",
            "updated_at": f"2025-07-20T12:00:0{number}" if number else None,
            "is_deleted": int(event == "DELETE"),
        }

    changes = [
        change(0, "a", "Uses npm", "ADD"),
        change(1, "a", "Uses pnpm", "UPDATE"),
        change(2, "b", "Uses make", "ADD"),
        change(3, "b", None, "DELETE"),
    ]
    path = database(tmp_path / "history.db", HISTORY, [("history", row) for row in changes])
    (memory,) = memories_of("mem0", path)
    assert (memory.text, memory.source) == ("Uses pnpm", "mem0:a")
    assert (memory.created_at, memory.updated_at) == (EPOCH, EPOCH + 1)
    assert left_out_of("mem0", path) == ["deleted there"]


def test_the_database_of_open_memory(tmp_path: Path) -> None:
    rows = [
        ("apps", {"id": "p", "name": "cursor"}),
        ("categories", {"id": "c", "name": "security"}),
        ("memory_categories", {"memory_id": "m", "category_id": "c"}),
        ("memories", {"id": "m", "app_id": "p", "content": "No keys", "state": "active"}),
        ("memories", {"id": "n", "app_id": "p", "content": "Old", "state": "deleted"}),
    ]
    path = database(tmp_path / "openmemory.db", OPEN_MEMORY, rows)
    (memory,) = memories_of("mem0", path)
    assert (memory.text, memory.namespace) == ("No keys", "security")
    assert memory.tags == ("security", "cursor")


def test_a_project_by_name(tmp_path: Path) -> None:
    row = {**RESULT, "metadata": {"repo": "shop"}}
    (record,) = items_of("mem0", export(tmp_path, [row]))
    assert isinstance(record, Record)
    assert record.project_name == "shop"


def test_the_stores_are_found(tmp_path: Path) -> None:
    path = database(tmp_path / ".mem0" / "history.db", HISTORY, [])
    program = program_named("mem0")
    assert program.stores(place_at(tmp_path)) == [path]
    named = place_at(tmp_path / "other", {"MEM0_DIR": str(path.parent)})
    assert program.stores(named) == [path]


@pytest.mark.parametrize("text", ["{}", "3", "nonsense", '{"results": 3}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "export.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"export\.json"):
        items_of("mem0", path)


def test_an_entry_that_is_not_an_object_is_left_out(tmp_path: Path) -> None:
    assert left_out_of("mem0", export(tmp_path, [3, RESULT])) == ["unreadable"]


def test_a_damaged_or_encrypted_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("memories.json", json.dumps([RESULT] * 50))
    whole = path.read_bytes()
    local, central = whole.index(b"PK\3\4"), whole.index(b"PK\1\2")
    for header, entry, value in ((6, 8, 1), (8, 10, 99), (8, 10, 14), (8, 10, 12)):
        changed = bytearray(whole)
        changed[local + header] = changed[central + entry] = value
        path.write_bytes(changed)
        with pytest.raises(UsageError, match="cannot read"):
            items_of("mem0", path)
    packed = bytearray(whole)
    packed[local + 45 : local + 65] = b"\xff" * 20
    path.write_bytes(packed)
    with pytest.raises(UsageError, match="cannot read"):
        items_of("mem0", path)


def test_the_first_change_has_the_time_at_which_a_memory_was_made(tmp_path: Path) -> None:
    row = {"memory_id": "m", "event": "ADD", "new_memory": "old", "is_deleted": 0}
    first = {**row, "id": "1", "created_at": "2025-07-20T12:00:00Z"}
    last = {**row, "id": "2", "event": "UPDATE", "new_memory": "new", "created_at": 1.0}
    path = database(tmp_path / "history.db", HISTORY, [("history", first), ("history", last)])
    (memory,) = memories_of("mem0", path)
    assert (memory.text, memory.created_at) == ("new", EPOCH)
