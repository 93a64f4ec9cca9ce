"""Sessions of many files in order of time, each event once."""

from pathlib import Path

from tests.unit.replay import samples

from upwell.episodes.events import Kind, SessionEvent
from upwell.replay.timeline import Timeline, selecting
from upwell.replay.transcripts import transcripts_at


def silent(line: str) -> None:
    raise AssertionError(line)


def event(session: str, at: float) -> SessionEvent:
    return SessionEvent(session=session, i=0, t=at, kind=Kind.SAY)


def test_checkpoints_of_a_session_are_replayed_once(tmp_path: Path) -> None:
    prompts = [samples.claude_record("user", f"10:00:0{n}", f"Question {n}") for n in range(5)]
    samples.lines(tmp_path / "1/full.jsonl", prompts[:2])
    samples.lines(tmp_path / "2/full.jsonl", prompts[:4])
    samples.lines(tmp_path / "3/full.jsonl", prompts)
    events = list(Timeline(transcripts_at([tmp_path]), silent))
    assert [entry.text for entry in events[1:-1]] == [f"Question {n}" for n in range(5)]
    assert [entry.i for entry in events] == list(range(7))


def test_a_fork_contributes_only_its_own_events(tmp_path: Path) -> None:
    first = samples.claude_record("user", "10:00:00", "Question")
    more = samples.claude_record("user", "10:00:09", "Another")
    other = samples.SESSION.replace("9", "8")
    samples.lines(tmp_path / f"{samples.SESSION}.jsonl", [first])
    samples.lines(tmp_path / f"{other}.jsonl", [first, more])
    events = list(Timeline(transcripts_at([tmp_path]), silent))
    assert [entry.text for entry in events if entry.kind is Kind.PROMPT] == ["Question", "Another"]


def test_the_same_words_twice_in_one_file_are_two_events(tmp_path: Path) -> None:
    twice = samples.claude_record("user", "10:00:00", "Go on")
    samples.lines(tmp_path / f"{samples.SESSION}.jsonl", [twice, twice])
    assert len([entry for entry in Timeline(transcripts_at([tmp_path]), silent)]) == 4


def test_sessions_are_selected_by_time_and_folder(tmp_path: Path) -> None:
    samples.claude(tmp_path)
    samples.neutral(tmp_path)
    result = transcripts_at([tmp_path])
    late = Timeline(result, silent, selecting(1_767_614_400.0, None))
    assert {entry.session for entry in late} == {"n"}
    assert Timeline(result, silent, selecting(0.0, Path("/code"))).sessions == 1
    assert Timeline(result, silent, selecting(0.0, Path("/cod"))).sessions == 0
