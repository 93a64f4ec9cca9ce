"""mem0: exports, built by the documented format."""

import json
from pathlib import Path

import pytest
from tests.unit.migration.reading import (
    EPOCH,
    items_of,
    left_out_of,
    memories_of,
    place_at,
)

from upwell.ground.errors import UsageError
from upwell.migration.base import Record
from upwell.migration.registry import program_named

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
DECISION = {
    "id": "7",
    "memory": "Prices are integers. Floats lost a cent.",
    "categories": ["decision"],
    "metadata": {"project": "shop", "files": ["src/price.py"]},
    "created_at": "2025-07-20T12:00:00+00:00",
}


def store(user: Path, *rows: dict[str, object]) -> Path:
    """The export of a user, where upwell looks for it."""
    folder = user / ".mem0"
    folder.mkdir(parents=True, exist_ok=True)
    return export(folder, list(rows), "memories.json")


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


def test_a_project_by_name(tmp_path: Path) -> None:
    row = {**RESULT, "metadata": {"repo": "shop"}}
    (record,) = items_of("mem0", export(tmp_path, [row]))
    assert isinstance(record, Record)
    assert record.project_name == "shop"


def test_the_export_in_its_folder_is_found(tmp_path: Path) -> None:
    folder = tmp_path / ".mem0"
    folder.mkdir()
    path = export(folder, [RESULT], "memories.json")
    program = program_named("mem0")
    assert program.stores(place_at(tmp_path)) == [path]
    named = place_at(tmp_path / "other", {"MEM0_DIR": str(folder)})
    assert program.stores(named) == [path]
    assert len(memories_of("mem0", folder)) == 1


@pytest.mark.parametrize("text", ["{}", "3", "nonsense", '{"results": 3}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "export.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"export\.json"):
        items_of("mem0", path)


def test_an_entry_that_is_not_an_object_is_left_out(tmp_path: Path) -> None:
    assert left_out_of("mem0", export(tmp_path, [3, RESULT])) == ["unreadable"]
