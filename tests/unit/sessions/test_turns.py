"""Turns: a question with its answer and the work in between, from every host's own transcript."""

from pathlib import Path

from tests.unit.replay import samples

from upwell.replay.transcripts import transcripts_at
from upwell.sessions.turns import FileChange, Run, Turn, error_lines, turns_of


def turns(path: Path) -> list[Turn]:
    (transcript,) = transcripts_at([path])
    return list(turns_of(transcript.events()))


def test_a_turn_has_its_question_its_remarks_and_its_commands(tmp_path: Path) -> None:
    first, second = turns(samples.claude(tmp_path))
    assert first.question == "Why does the pump stall?"
    assert first.conclusion == "I look."
    assert first.runs == [Run("make test", worked=False)]
    assert list(first.read) == ["/code/harbour/pump.py"]
    assert (first.number, second.number) == (0, 1)
    assert second.question == "/review the pump"
    assert second.conclusion == ""


def test_a_short_closing_answer_is_read_with_the_remark_before() -> None:
    turn = Turn(session="s", host="claude", number=0, question="q")
    turn.remarks = ["The valve was shut; I opened it.", "Done."]
    assert turn.conclusion == "The valve was shut; I opened it.\nDone."


def test_edits_keep_what_they_removed_and_added(tmp_path: Path) -> None:
    edits = {"file_path": "/code/a.py", "old_string": "one", "new_string": "two"}
    records = [
        samples.claude_record("user", "10:00:00", "Change it"),
        samples.claude_call("10:00:01", "Edit", **edits),
        samples.claude_result("10:00:02", "ok"),
        samples.claude_call("10:00:03", "Write", "t2", file_path="/code/b.py", content="new"),
        samples.claude_result("10:00:04", "ok", "t2"),
    ]
    (turn,) = turns(samples.lines(tmp_path / f"{samples.SESSION}.jsonl", records))
    assert turn.changes == [
        FileChange("/code/a.py", "one", "two"),
        FileChange("/code/b.py", "", "new"),
    ]
    assert turn.changed == ["/code/a.py", "/code/b.py"]


def test_an_edit_that_failed_changed_nothing(tmp_path: Path) -> None:
    records = [
        samples.claude_record("user", "10:00:00", "Change it"),
        samples.claude_call("10:00:01", "Edit", file_path="/code/a.py", old_string="x"),
        samples.claude_result("10:00:02", "String to replace not found", is_error=True),
    ]
    (turn,) = turns(samples.lines(tmp_path / f"{samples.SESSION}.jsonl", records))
    assert turn.changes == []


def test_only_lines_about_errors_are_errors() -> None:
    output = "Collecting\n\x1b[31mError: no such pump\x1b[0m\nall fine here\nExit code 2"
    assert error_lines(output) == ["Error: no such pump"]
    assert error_lines("fine\n" * 10_000 + "fatal: the valve is shut") == [
        "fatal: the valve is shut"
    ]
