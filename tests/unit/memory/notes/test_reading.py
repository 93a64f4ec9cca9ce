"""Notes of another `stm.json`, copied into the one in use."""

import json
from pathlib import Path

import pytest

from upwell.ground.errors import UsageError
from upwell.memory.notes import Origin, Origins
from upwell.memory.stm import ShortTerm, read_notes
from upwell.memory.transfer import copy_notes

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
DAY = 86_400.0
NOTES = [
    {
        "id": "n1",
        "content": "kettle",
        "created_at": "2025-07-20T12:00:00Z",
        "viewed_at": "2025-07-21T12:00:00Z",
        "mood": "fine",
    },
    {"id": 2, "content": f"teapot {TOKEN}", "created_at": "2025-07-20"},
    {"content": "cup", "kind": "decision", "tags": ["tea"]},
]


def theirs(folder: Path, notes: object) -> Path:
    path = folder / "theirs.json"
    path.write_text(json.dumps(notes))
    return path


class At:
    """A clock that stands still."""

    def __init__(self, now: float) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now


def test_the_tools_find_the_notes_with_their_ids_and_times(tmp_path: Path) -> None:
    notes = ShortTerm(tmp_path / "stm.json", clock=At(1753099200.0 + DAY))
    assert copy_notes(notes, theirs(tmp_path, NOTES)).stored == 3
    first, second, third = notes.entries()
    assert (first.id, first.created_at, first.viewed_at) == ("n1", 1753012800.0, 1753099200.0)
    assert (second.id, second.viewed_at) == ("2", 1752969600.0)
    assert third.id
    assert (third.labels.place, third.labels.all_tags) == ("decisions", ("decision", "tea"))
    assert [entry.id for entry in notes.search(query="kettle")] == ["n1"]


def test_a_second_import_adds_nothing(tmp_path: Path) -> None:
    notes = ShortTerm(tmp_path / "stm.json")
    copy_notes(notes, theirs(tmp_path, NOTES))
    before = notes.path.read_bytes()
    assert copy_notes(notes, theirs(tmp_path, NOTES)).stored == 0
    assert notes.path.read_bytes() == before


def test_secrets_are_masked_and_counted(tmp_path: Path) -> None:
    notes = ShortTerm(tmp_path / "stm.json")
    assert sum(copy_notes(notes, theirs(tmp_path, NOTES)).redacted.values()) == 1
    assert TOKEN not in notes.path.read_text()


def test_an_old_note_is_not_cleared_at_once(tmp_path: Path) -> None:
    notes = ShortTerm(tmp_path / "stm.json", clock=At(1753099200.0 + 400 * DAY))
    copy_notes(notes, theirs(tmp_path, NOTES))
    assert notes.clear() == 0
    assert notes.entries()[0].created_at == 1753012800.0


def test_a_projects_own_file_takes_no_notes_of_another(tmp_path: Path) -> None:
    notes = ShortTerm(
        tmp_path / "stm.json", origins=Origins(tmp_path / "origins.json"), root="/code/shop"
    )
    entries = list(read_notes(theirs(tmp_path, NOTES)))
    foreign = [(entry, Origin(project="/code/other")) for entry in entries]
    assert notes.take_over(foreign) == ([], ())
    taken, _ = notes.take_over([(entry, Origin()) for entry in entries])
    assert len(taken) == 3
    assert {memory.project for memory in notes.memories()} == {"/code/shop"}


@pytest.mark.parametrize("text", ["{}", "[1]", '[{"id": "a"}]', "[", ""])
def test_a_file_that_is_not_an_stm_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "theirs.json"
    path.write_text(text)
    notes = ShortTerm(tmp_path / "stm.json")
    with pytest.raises(UsageError, match=r"theirs\.json"):
        copy_notes(notes, path)
    assert not notes.path.exists()


@pytest.mark.parametrize("field", ["created_at", "viewed_at"])
def test_an_invalid_time_is_reported_with_its_field(tmp_path: Path, field: str) -> None:
    path = theirs(tmp_path, [{"id": "n1", "content": "kettle", field: "soon"}])
    with pytest.raises(UsageError, match=f"note 1: {field} is not a time: 'soon'"):
        list(read_notes(path))
