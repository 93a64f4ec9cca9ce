"""The benchmark of episodes (`benchmarks/episodes.py`) counts what sessions find out again."""

from benchmarks.episodes import measure, moment, report
from tests.unit.episodes.events import ROOT, call, shell

from upwell.episodes.events import SessionEvent

ERROR = "Error: Either --session or --path must be provided"


def session(name: str, start: int, *, remedy: bool = True) -> list[SessionEvent]:
    events = [shell("kiln pr", ERROR, i=start, failed=True, session=name)]
    if remedy:
        events.append(shell("kiln pr --path .", "fine", i=start + 1, session=name))
    return events


def test_a_repeat_is_met_by_an_earlier_session() -> None:
    result = measure([session("a", 0), session("b", 10), session("c", 20)])
    assert (result.sessions, result.events) == (3, 6)
    assert result.triggered == {"fails": 3}
    assert result.repeats == {"fails": 2}
    assert result.met == {"fails": 2}
    assert result.learned == {"command": 1}
    assert [spoken.session[0].session for spoken in result.spoken] == ["b", "c"]


def test_a_repeat_without_a_remedy_is_not_met() -> None:
    result = measure([session("a", 0, remedy=False), session("b", 10, remedy=False)])
    assert result.repeats == {"fails": 1}
    assert result.met["fails"] == 0
    assert result.spoken == []


def test_a_session_does_not_hear_itself_or_a_later_one() -> None:
    later_first = measure([session("b", 10), session("a", 0)])
    assert later_first.spoken == []


def test_a_name_with_two_places_does_not_surface() -> None:
    reads = [
        [call("Read", "x", i=n, session=str(n), file_path=f"{ROOT}/{folder}/kiln_store.py")]
        for n, folder in enumerate(("src/a", "src/b"))
    ]
    missed = call(
        "Read", "File does not exist.", i=9, failed=True, file_path=f"{ROOT}/kiln_store.py"
    )
    assert len(measure([reads[0], [missed]]).spoken) == 1
    assert measure([*reads, [missed]]).spoken == []


def test_the_report_names_rates_and_moments() -> None:
    result = measure([session("a", 0), session("b", 10)])
    lines = list(report("kiln", result))
    assert "2 sessions, 4 events" in lines[0]
    assert "  fails: 2 moments, 1 repeats, 1 met" in lines
    assert any(line.startswith("  > ") for line in moment(result.spoken[0]))
