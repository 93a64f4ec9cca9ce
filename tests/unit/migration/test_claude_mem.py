"""claude-mem: rows by the schema of version 13; `test_moving_in_real` has a database that the
program itself wrote.
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
from upwell.ground.types.memory import Trust
from upwell.migration.base import Record
from upwell.migration.registry import program_named

SCHEMA = """
CREATE TABLE observations (
  id INTEGER PRIMARY KEY, memory_session_id TEXT, project TEXT, text TEXT, type TEXT, title TEXT,
  subtitle TEXT, facts TEXT, narrative TEXT, concepts TEXT, files_read TEXT, files_modified TEXT,
  created_at TEXT, created_at_epoch INTEGER);
CREATE TABLE session_summaries (
  id INTEGER PRIMARY KEY, memory_session_id TEXT, project TEXT, request TEXT, investigated TEXT,
  learned TEXT, completed TEXT, next_steps TEXT, notes TEXT, files_edited TEXT,
  created_at_epoch INTEGER);
CREATE TABLE user_prompts (id INTEGER PRIMARY KEY, prompt_text TEXT);
CREATE TABLE projects (id TEXT PRIMARY KEY, root_path TEXT);
CREATE TABLE memory_items (
  id TEXT PRIMARY KEY, project_id TEXT, legacy_observation_id INTEGER, kind TEXT, type TEXT,
  title TEXT, subtitle TEXT, text TEXT, narrative TEXT, facts TEXT, concepts TEXT,
  files_read TEXT, files_modified TEXT, created_at_epoch INTEGER);
"""
DECISION = {
    "id": 7,
    "memory_session_id": "s1",
    "project": "shop",
    "type": "decision",
    "title": "Prices are integers",
    "narrative": "Floats lost a cent.",
    "facts": json.dumps(["Tax is rounded half up"]),
    "concepts": json.dumps(["trade-off"]),
    "files_read": json.dumps(["src/cart.py"]),
    "files_modified": json.dumps(["src/price.py"]),
    "created_at_epoch": int(EPOCH * 1000),
}


def store(folder: Path, *rows: tuple[str, dict[str, object]]) -> Path:
    return database(folder / ".claude-mem" / "claude-mem.db", SCHEMA, rows)


def test_an_observation_keeps_what_it_says_and_where_it_comes_from(tmp_path: Path) -> None:
    path = store(tmp_path, ("observations", DECISION))
    (record,) = (item for item in items_of("claude-mem", path) if isinstance(item, Record))
    memory = record.memory
    assert memory.text == "Prices are integers\nFloats lost a cent.\n- Tax is rounded half up"
    assert (memory.namespace, record.project_name) == ("decisions", "shop")
    assert memory.tags == ("decision", "trade-off")
    assert memory.paths == ("src/price.py", "src/cart.py")
    assert memory.created_at == EPOCH
    assert (memory.source, memory.trust) == ("claude-mem:observation/7", Trust.IMPORTED)
    assert (memory.provenance.server, memory.provenance.session) == ("claude-mem", "s1")


@pytest.mark.parametrize(
    ("type_", "concept", "kind"),
    [
        ("bugfix", "what-changed", "learnings"),
        ("feature", "gotcha", "progress"),
        ("discovery", "how-it-works", "context"),
        ("discovery", "gotcha", "learnings"),
        ("change", "pattern", "patterns"),
        ("security_note", "gotcha", "security"),
        ("something new", "", "context"),
    ],
)
def test_the_type_decides_the_kind(tmp_path: Path, type_: str, concept: str, kind: str) -> None:
    row = {**DECISION, "type": type_, "concepts": json.dumps([concept])}
    (memory,) = memories_of("claude-mem", store(tmp_path, ("observations", row)))
    assert memory.namespace == kind


def test_sensitive_observations_prompts_and_summaries_without_a_result_stay_out(
    tmp_path: Path,
) -> None:
    path = store(
        tmp_path,
        ("observations", {**DECISION, "type": "sensitive"}),
        ("session_summaries", {"id": 1, "project": "shop", "request": "look around"}),
        ("user_prompts", {"prompt_text": "look around"}),
    )
    assert memories_of("claude-mem", path) == []
    assert left_out_of("claude-mem", path) == [
        "marked as sensitive",
        "a summary without a result",
        "a prompt, not a memory",
    ]


def test_a_summary_is_a_memory(tmp_path: Path) -> None:
    row = {
        "id": 3,
        "project": "shop",
        "request": "Fix it",
        "learned": "The pool needs two connections.",
        "completed": "Pool of 2.",
        "files_edited": '["src/pool.py"]',
    }
    (memory,) = memories_of("claude-mem", store(tmp_path, ("session_summaries", row)))
    assert memory.text == "Fix it\nThe pool needs two connections.\nPool of 2."
    assert (memory.namespace, memory.paths) == ("learnings", ("src/pool.py",))


def test_a_memory_that_a_person_added_to_the_server_has_its_projects_path(tmp_path: Path) -> None:
    row = {
        "id": "m1",
        "project_id": "p1",
        "kind": "manual",
        "type": "decision",
        "text": "Ask before a release.",
        "facts": "[]",
        "concepts": "[]",
        "created_at_epoch": int(EPOCH * 1000),
    }
    copied = {**row, "id": "m2", "legacy_observation_id": 7}
    path = store(
        tmp_path,
        ("projects", {"id": "p1", "root_path": "/code/shop"}),
        ("memory_items", row),
        ("memory_items", copied),
    )
    (memory,) = memories_of("claude-mem", path)
    assert (memory.text, memory.project) == ("Ask before a release.", "/code/shop")


def test_lists_that_are_not_json_are_read_as_far_as_possible(tmp_path: Path) -> None:
    row = {**DECISION, "facts": "[broken", "concepts": None, "files_modified": "a.py, b.py"}
    (memory,) = memories_of("claude-mem", store(tmp_path, ("observations", row)))
    assert memory.paths[:2] == ("a.py", "b.py")


def test_the_store_is_found_where_the_program_keeps_it(tmp_path: Path) -> None:
    program = program_named("claude-mem")
    assert program.stores(place_at(tmp_path)) == []
    path = store(tmp_path)
    assert program.stores(place_at(tmp_path)) == [path]
    elsewhere = place_at(tmp_path / "other", {"CLAUDE_MEM_DATA_DIR": str(path.parent)})
    assert program.stores(elsewhere) == [path]


@pytest.mark.parametrize("content", [b"not a database", b""])
def test_another_file_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "claude-mem.db"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"claude-mem\.db"):
        items_of("claude-mem", path)
