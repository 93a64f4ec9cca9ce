"""`stm.json`: the tools for notes, and their edge cases."""

import json
import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from upwell.ground.errors import StoreError, StoreUnwritable, UsageError
from upwell.ground.types.memory import Trust
from upwell.memory.notes import Origin, Origins
from upwell.memory.stm import ShortTerm, is_untrusted, ping_of
from upwell.testing import ManualClock

DAY = 86_400.0
NOW = 1_753_012_800.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "stm.json"


@pytest.fixture
def notes(path: Path, clock: ManualClock) -> ShortTerm:
    return ShortTerm(path, clock=clock)


def written(path: Path) -> list[dict[str, str]]:
    return json.loads(path.read_text())


def put(path: Path, *entries: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(list(entries)))


def note(number: int, content: str, made: str, viewed: str | None = None) -> dict[str, object]:
    return {
        "id": f"n{number}",
        "content": content,
        "created_at": made,
        "viewed_at": viewed or made,
    }


def test_a_note_has_exactly_the_four_keys(notes: ShortTerm, path: Path) -> None:
    entry, rules = notes.add("my favorite color is blue")
    assert rules == ()
    (raw,) = written(path)
    assert list(raw) == ["id", "content", "created_at", "viewed_at"]
    assert raw["created_at"] == raw["viewed_at"] == "2025-07-20T12:00:00.000Z"
    assert raw["id"] == entry.id
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_empty_note_is_refused_and_nothing_is_written(notes: ShortTerm, path: Path) -> None:
    with pytest.raises(UsageError):
        notes.add("  \n")
    assert not path.exists()


def test_a_secret_is_masked(notes: ShortTerm, path: Path) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    entry, rules = notes.add(f"use {token}")
    assert rules == ("github-pat",)
    assert token not in path.read_text()
    assert entry.content == "use [REDACTED:github-pat]"


def test_at_most_three_most_occurrences_first_newest_on_ties(notes: ShortTerm, path: Path) -> None:
    put(
        path,
        note(1, "an apple", "2025-07-01T00:00:00Z"),
        note(2, "an apple a day", "2025-07-03T00:00:00Z"),
        note(3, "apple apple apple", "2025-06-01T00:00:00Z"),
        note(4, "one apple", "2025-07-02T00:00:00Z"),
    )
    assert [entry.id for entry in notes.search(query="apple")] == ["n3", "n2", "n4"]


def test_a_phrase_then_all_words_then_some(notes: ShortTerm, path: Path) -> None:
    put(
        path,
        note(1, "the sky is blue blue blue", "2025-07-09T00:00:00Z"),
        note(2, "color: blue", "2025-07-02T00:00:00Z"),
        note(3, "a blue color it is", "2025-07-01T00:00:00Z"),
    )
    assert [entry.id for entry in notes.search(query="blue color")] == ["n3", "n2", "n1"]


def test_case_and_accents_do_not_matter(notes: ShortTerm) -> None:
    notes.add("Cumpleaños de Eva, ALERGIA a nueces")
    assert notes.search(query="cumpleanos")
    assert notes.search(query="alergia")


def test_a_day_is_a_day_in_utc_and_must_be_one(notes: ShortTerm, path: Path) -> None:
    put(
        path,
        note(1, "late", "2025-07-20T23:59:59Z"),
        note(2, "next", "2025-07-21T00:00:00Z"),
        note(3, "legacy", "2025-07-20"),
    )
    assert {entry.id for entry in notes.search(date="2025-07-20")} == {"n1", "n3"}
    for wrong in ("2025-7-20", "2025-02-30", "yesterday"):
        with pytest.raises(UsageError):
            notes.search(date=wrong)


def test_all_conditions_apply_and_none_is_an_error(notes: ShortTerm, path: Path) -> None:
    put(path, note(1, "apple", "2025-07-20T00:00:00Z"), note(2, "pear", "2025-07-20T00:00:00Z"))
    before = path.stat().st_mtime_ns
    assert [entry.id for entry in notes.search(id="n2")] == ["n2"]
    assert notes.search(id="n2", query="apple") == []
    assert notes.search(id="unknown") == []
    for empty in ({}, {"query": "  "}):
        with pytest.raises(UsageError) as refused:
            notes.search(**empty)
        assert all(name in refused.value.message for name in ("query", "id", "date"))
    assert path.stat().st_mtime_ns >= before


def test_only_returned_notes_count_as_viewed(
    notes: ShortTerm, path: Path, clock: ManualClock
) -> None:
    put(path, note(1, "apple", "2025-07-01T00:00:00Z"), note(2, "pear", "2025-07-01T00:00:00Z"))
    clock.advance(DAY)
    notes.search(query="apple")
    apple, pear = written(path)
    assert apple["viewed_at"] == "2025-07-21T12:00:00.000Z"
    assert apple["created_at"] == "2025-07-01T00:00:00Z"
    assert pear["viewed_at"] == "2025-07-01T00:00:00Z"


def test_a_note_not_viewed_for_35_days_moves_to_the_trash(notes: ShortTerm, path: Path) -> None:
    put(
        path,
        note(1, "34 days", "2025-01-01T00:00:00Z", "2025-06-16T12:00:00Z"),
        note(2, "35 days", "2025-01-01T00:00:00Z", "2025-06-15T12:00:00Z"),
        note(3, "35 days and a second", "2025-01-01T00:00:00Z", "2025-06-15T11:59:59Z"),
        note(4, "made long ago, viewed yesterday", "2025-01-01T00:00:00Z", "2025-07-19T00:00:00Z"),
        note(5, "nobody knows", "???", "???"),
        {"id": "n6", "content": "old, never viewed", "created_at": "2025-01-01"},
    )
    assert notes.clear() == 2
    assert [raw["id"] for raw in written(path)] == ["n1", "n2", "n4", "n5"]
    trash = written(path.with_name("stm.trash.json"))
    assert [raw["id"] for raw in trash] == ["n3", "n6"]
    assert notes.clear() == 0


def test_extra_keys_and_foreign_members_stay(notes: ShortTerm, path: Path) -> None:
    foreign = {"id": "x", "content": "c", "created_at": "2025-07-20", "viewed_at": "", "mood": [1]}
    put(path, foreign, {"comment": "mine"}, 5)
    notes.add("another")
    notes.search(id="x")
    first, second, third, _ = written(path)
    assert first["mood"] == [1]
    assert (second, third) == ({"comment": "mine"}, 5)
    assert notes.delete("x")
    assert written(path)[0] == {"comment": "mine"}


@pytest.mark.parametrize("content", ["", "{", '{"a": 1}', "\x00\xff", "[" * 100_000])
def test_a_torn_file_is_moved_aside(notes: ShortTerm, path: Path, content: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(content)
    notes.add("goes on")
    assert len(written(path)) == 1
    aside = notes.file.take_report()
    assert aside is not None
    assert aside.read_text() == content
    assert notes.file.take_report() is None, "it is reported once"


def test_deleting_twice_finds_nothing_and_writes_nothing(notes: ShortTerm, path: Path) -> None:
    entry, _ = notes.add("x")
    assert notes.delete(entry.id) is True
    before = path.read_bytes(), path.stat().st_mtime_ns
    assert notes.delete(entry.id) is False
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_an_edit_by_hand_is_seen(notes: ShortTerm, path: Path) -> None:
    notes.add("one")
    put(path, note(9, "written by hand", "2025-07-20T00:00:00Z"))
    assert [entry.id for entry in notes.entries()] == ["n9"]


def test_a_read_moves_a_torn_file_aside_too(notes: ShortTerm, path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("[{")
    assert notes.search(query="anything") == []
    aside = notes.file.take_report()
    assert aside is not None
    assert aside.read_text() == "[{"
    assert written(path) == []


def test_a_pipe_is_an_error_and_is_never_waited_for(notes: ShortTerm, path: Path) -> None:
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(StoreError):
        notes.search(query="x")
    assert not notes.file.ping().ok


def test_a_read_only_folder_costs_the_viewing_time_and_not_the_answer(
    notes: ShortTerm, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes.add("apple")
    before = path.read_bytes()

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("upwell.memory.notes.write_atomically", refuse)
    assert [entry.content for entry in notes.search(query="apple")] == ["apple"]
    with pytest.raises(StoreUnwritable):
        notes.add("pear")
    assert path.read_bytes() == before


def test_a_note_is_visible_in_its_project_and_a_global_one_everywhere(
    path: Path, tmp_path: Path
) -> None:
    notes = ShortTerm(path, origins=Origins(tmp_path / "origins.json"))
    agent = Origin(project="/a", trust=Trust.AGENT, session="s1")
    mine, _ = notes.add("kettle mine", agent)
    everywhere, _ = notes.add("kettle everywhere")
    assert {e.id for e in notes.search(query="kettle", project="/a")} == {mine.id, everywhere.id}
    assert {e.id for e in notes.search(query="kettle", project="/b")} == {everywhere.id}
    assert len(notes.search(query="kettle")) == 2
    assert notes.delete(mine.id, project="/b") is False
    first, second = notes.memories()
    assert (first.project, first.trust, first.source) == ("/a", Trust.AGENT, f"stm:{mine.id}")
    assert first.provenance.session == "s1"
    assert (second.project, second.trust) == (None, Trust.USER)
    assert notes.delete(mine.id, project="/a")
    assert list(json.loads((tmp_path / "origins.json").read_text())) == [everywhere.id]


def test_the_notes_of_a_project_are_forgotten_and_no_others(path: Path, tmp_path: Path) -> None:
    notes = ShortTerm(path, origins=Origins(tmp_path / "origins.json"))
    for text in ("kettle", "grille"):
        notes.add(text, Origin(project="/a"))
    other, _ = notes.add("pump", Origin(project="/b"))
    everywhere, _ = notes.add("valve")
    assert notes.forget_project("/c", for_good=False) == 0
    assert notes.forget_project("/a", for_good=False) == 2
    assert [entry.id for entry in notes.entries()] == [other.id, everywhere.id]
    assert [raw["content"] for raw in written(notes.trash)] == ["kettle", "grille"]
    assert notes.forget_project("/b", for_good=True) == 1
    assert [raw["content"] for raw in written(notes.trash)] == ["kettle", "grille"]
    assert notes.forget_project("/a", for_good=True) == 2, "those in the trash"
    assert written(notes.trash) == []
    assert list(json.loads((tmp_path / "origins.json").read_text())) == [everywhere.id]


def test_in_a_projects_file_only_notes_written_here_count(path: Path) -> None:
    origins = Origins(path.with_name("origins.json"))
    elsewhere, _ = ShortTerm(path.with_name("x.json"), origins=origins, root="/other").add("kettle")
    put(
        path,
        note(1, "kettle by hand", "2020-07-20T00:00:00Z"),
        {**note(2, "kettle", "2020-07-20T00:00:00Z"), "id": elsewhere.id},
    )
    notes = ShortTerm(path, origins=origins, root="/repo")
    assert is_untrusted(notes)
    assert notes.search(query="kettle") == [] == notes.memories()
    mine, _ = notes.add("kettle mine")
    assert [entry.id for entry in notes.search(query="kettle")] == [mine.id]
    assert [(entry.id, entry.project) for entry in notes.memories()] == [(mine.id, "/repo")]
    assert notes.clear() == 0
    assert not is_untrusted(notes)
    assert "2 of them come from elsewhere" in ping_of(notes).detail


def test_cleared_notes_are_kept_for_thirty_days(
    notes: ShortTerm, path: Path, clock: ManualClock
) -> None:
    notes.add("first")
    clock.advance(36 * DAY)
    notes.clear()
    notes.add("second")
    clock.advance(36 * DAY)
    notes.clear()
    assert [raw["content"] for raw in written(notes.trash)] == ["second"]


def add_fifty(path: Path, name: str) -> None:
    notes = ShortTerm(path)
    for number in range(50):
        notes.add(f"{name} {number}")


def test_a_hundred_additions_from_two_processes_are_a_hundred_notes(path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=add_fifty, args=(path, name)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert len({raw["content"] for raw in written(path)}) == 100
