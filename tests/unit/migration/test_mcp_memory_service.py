"""mcp-memory-service: rows by the schema of version 12; `test_moving_in_real` has a database that
the program itself wrote.
"""

import json
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

SCHEMA = """
CREATE TABLE memories (
  id INTEGER PRIMARY KEY AUTOINCREMENT, content_hash TEXT UNIQUE NOT NULL, content TEXT NOT NULL,
  tags TEXT, memory_type TEXT, metadata TEXT, created_at REAL, updated_at REAL,
  created_at_iso TEXT, updated_at_iso TEXT, deleted_at REAL DEFAULT NULL,
  superseded_by TEXT);
"""
ROW = {
    "content_hash": "abc",
    "content": "Deploys need the VPN.",
    "tags": "deploy,vpn",
    "memory_type": "gotcha",
    "metadata": json.dumps({"session_id": "s1"}),
    "created_at": EPOCH,
    "updated_at": EPOCH + 60,
}


def store(folder: Path, **changes: object) -> Path:
    return database(folder / "sqlite_vec.db", SCHEMA, [("memories", {**ROW, **changes})])


def test_a_memory_keeps_its_kind_tags_and_times(tmp_path: Path) -> None:
    (memory,) = memories_of("mcp-memory-service", store(tmp_path))
    assert memory.text == "Deploys need the VPN."
    assert (memory.namespace, memory.tags) == ("learnings", ("deploy", "vpn", "gotcha"))
    assert (memory.created_at, memory.updated_at) == (EPOCH, EPOCH + 60)
    assert (memory.source, memory.provenance.session) == ("mcp-memory-service:abc", "s1")


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        ("decision", "decisions"),
        ("Bug", "learnings"),
        ("preference", "patterns"),
        (None, "context"),
    ],
)
def test_the_type_decides_the_kind(tmp_path: Path, type_: str | None, kind: str) -> None:
    (memory,) = memories_of("mcp-memory-service", store(tmp_path, memory_type=type_))
    assert memory.namespace == kind


@pytest.mark.parametrize(
    ("changes", "name", "folder"),
    [
        ({"tags": "project:shop"}, "shop", None),
        ({"metadata": '{"project": "shop"}'}, "shop", None),
        ({"metadata": '{"project_path": "/code/shop"}'}, "", "/code/shop"),
        ({"metadata": "broken"}, "", None),
    ],
)
def test_the_project_comes_from_tags_or_metadata(
    tmp_path: Path, changes: dict[str, str], name: str, folder: str
) -> None:
    (record,) = items_of("mcp-memory-service", store(tmp_path, **changes))
    assert isinstance(record, Record)
    assert (record.project_name, record.memory.project) == (name, folder)


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"deleted_at": EPOCH}, "deleted there"), ({"superseded_by": "def"}, "superseded there")],
)
def test_a_memory_that_does_not_count_there_stays_out(
    tmp_path: Path, changes: dict[str, object], why: str
) -> None:
    path = store(tmp_path, **changes)
    assert memories_of("mcp-memory-service", path) == []
    assert left_out_of("mcp-memory-service", path) == [why]


def test_the_store_is_found_where_the_program_keeps_it(tmp_path: Path) -> None:
    program = program_named("mcp-memory-service")
    path = store(tmp_path)
    for name, value in (("MCP_MEMORY_SQLITE_PATH", path), ("MCP_MEMORY_BASE_DIR", tmp_path)):
        assert program.stores(place_at(tmp_path / "other", {name: str(value)})) == [path]


def test_another_database_is_refused(tmp_path: Path) -> None:
    path = database(tmp_path / "other.db", "CREATE TABLE memories (x)", [])
    with pytest.raises(UsageError, match="not a database of mcp-memory-service"):
        items_of("mcp-memory-service", path)
