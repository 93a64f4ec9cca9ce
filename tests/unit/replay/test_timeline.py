"""Sessions of many files in order of time, each event once."""

from pathlib import Path

from tests.unit.replay import samples

from upwell.episodes.events import Kind, SessionEvent
from upwell.replay.merge import EventStream, merged
from upwell.replay.timeline import Timeline, selecting
from upwell.replay.transcripts import transcripts_at


def silent(line: str) -> None:
    raise AssertionError(line)


def event(session: str, at: float) -> SessionEvent:
    return SessionEvent(session=session, i=0, t=at, kind=Kind.SAY)


def test_streams_are_merged_by_time_and_opened_late() -> None:
    opened: list[str] = []

    def stream(name: str, *times: float) -> EventStream:
        def begin():
            opened.append(name)
            for at in times:
                yield event(name, at)

        return EventStream(times[0], begin)

    result = merged([stream("a", 1, 5), stream("b", 10, 11), stream("c", 2, 10)])
    assert [(entry.session, entry.t) for entry in [next(result), next(result), next(result)]] == [
        ("a", 1),
        ("c", 2),
        ("a", 5),
    ]
    assert opened == ["a", "c"]
    assert [(entry.session, entry.t) for entry in result] == [("b", 10), ("c", 10), ("b", 11)]


def test_sessions_begin_and_end_once(tmp_path: Path) -> None:
    for name, write in samples.WRITERS.items():
        if name not in ("gemini_lines", "opencode_database"):
            write(tmp_path / name)
    events = list(Timeline(transcripts_at([tmp_path]), silent))
    times = [entry.t for entry in events]
    assert times == sorted(times)
    for session in {entry.session for entry in events}:
        kinds = [entry.kind for entry in events if entry.session == session]
        assert (kinds[0], kinds[-1]) == (Kind.START, Kind.END)
        assert kinds.count(Kind.START) == kinds.count(Kind.END) == 1


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


def test_neutral_events_keep_their_numbers(tmp_path: Path) -> None:
    samples.neutral(tmp_path)
    events = list(Timeline(transcripts_at([tmp_path]), silent))
    assert [(entry.i, str(entry.kind)) for entry in events] == [
        (-1, "start"),
        (0, "prompt"),
        (1, "tool"),
        (2, "end"),
    ]


def test_a_broken_file_costs_only_that_file(tmp_path: Path) -> None:
    samples.claude(tmp_path)
    broken = samples.neutral(tmp_path)
    broken.write_text(broken.read_text() + '{"session": 1}\n')
    answer: list[str] = []
    timeline = Timeline(transcripts_at([tmp_path]), answer.append)
    assert {entry.host for entry in timeline if entry.host} == {"claude"}
    assert timeline.unreadable == 1
    assert len(answer) == 1
    assert "flags.jsonl is left out" in answer[0]
    assert "\n" not in answer[0]


def test_sessions_are_selected_by_time_and_folder(tmp_path: Path) -> None:
    samples.claude(tmp_path)
    samples.neutral(tmp_path)
    result = transcripts_at([tmp_path])
    late = Timeline(result, silent, selecting(1_767_614_400.0, None))
    assert {entry.session for entry in late} == {"n"}
    assert Timeline(result, silent, selecting(0.0, Path("/code"))).sessions == 1
    assert Timeline(result, silent, selecting(0.0, Path("/cod"))).sessions == 0


def test_the_survey_shows_its_progress(tmp_path: Path) -> None:
    samples.claude(tmp_path)
    samples.codex(tmp_path)
    shown: list[tuple[int, int]] = []
    Timeline(
        transcripts_at([tmp_path]), silent, show=lambda done, total: shown.append((done, total))
    )
    assert shown == [(1, 2), (2, 2)]
