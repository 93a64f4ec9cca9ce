"""How well transcripts were understood, in words for the user."""

import json
from pathlib import Path

import pytest

from upwell.replay.transcripts import format_named
from upwell.replay.transcripts.base import MAX_KINDS, ReadTally, records
from upwell.replay.transcripts.census import Census, newest_of_user

CODEX = format_named("codex")


def census_of(*tallies: ReadTally) -> list[str]:
    census = Census()
    for tally in tallies:
        census.add(CODEX, tally)
    return list(census.lines())


def test_an_agent_whose_records_are_unknown_is_named_with_its_version() -> None:
    old = ReadTally(records=500, unknown={"x": 1}, prompts=3, version="0.99.0")
    new = ReadTally(records=480, unknown={"novel": 210, "x": 3}, prompts=2, version="0.301.2")
    (line,) = census_of(old, new)
    assert line.startswith("Codex CLI 0.301.2: 214 of 980 records not understood (novel, x)")
    assert CODEX.written_for in line


@pytest.mark.parametrize(
    ("tally", "is_named"),
    [
        (ReadTally(records=1_000, unknown={"x": 2}, prompts=5), False),
        (ReadTally(records=100, prompts=5), False),
        (ReadTally(records=100), True),
        (ReadTally(records=3), False),
        (ReadTally(), False),
    ],
)
def test_silence_where_all_was_understood(tally: ReadTally, *, is_named: bool) -> None:
    assert bool(census_of(tally)) is is_named


def test_lines_that_are_not_json_count_except_an_unfinished_last_one(tmp_path: Path) -> None:
    path, tally = tmp_path / "s.jsonl", ReadTally()
    path.write_text('{"a": 1}\nbroken\n[1]\n\n{"b": 2}\n{"c"')
    assert [entry for _, entry in records(path, 0, tally)] == [{"a": 1}, {"b": 2}]
    assert (tally.records, tally.missed) == (4, 2)


def test_kinds_without_end_are_counted_together() -> None:
    tally = ReadTally()
    for number in range(3 * MAX_KINDS):
        tally.miss(f"kind {number}")
    assert (tally.missed, len(tally.unknown)) == (3 * MAX_KINDS, MAX_KINDS + 1)


def test_the_newest_transcript_of_each_agent_is_tried(tmp_path: Path) -> None:
    folder = tmp_path / ".codex" / "sessions" / "2026" / "11" / "20"
    folder.mkdir(parents=True)
    said = {"type": "event_msg", "payload": {"type": "user_message", "message": "Hello"}}
    path = folder / "rollout-2026-11-20T10-00-00-0.jsonl"
    path.write_text(json.dumps(said) + "\n" + "nonsense\n" * 3)
    (line,) = newest_of_user(tmp_path, tmp_path).lines()
    assert "3 of 4 records not understood" in line
    assert list(newest_of_user(tmp_path / "nobody", tmp_path).lines()) == []
