"""A session's transcript shows which commands it needs again."""

from pathlib import Path

import pytest
from tests.unit.replay import samples

from upwell.app import memory
from upwell.app.memory import commands_in


def transcript(folder: Path, *commands: str) -> Path:
    records = [samples.claude_record("user", "10:00:00", "Check the pump")]
    for number, command in enumerate(commands):
        records += [
            samples.claude_call("10:00:01", "Bash", f"t{number}", command=command),
            samples.claude_result("10:00:02", "ok", f"t{number}"),
        ]
    return samples.lines(folder / f"{samples.SESSION}.jsonl", records)


def test_commands_that_worked_are_read_from_the_transcript(tmp_path: Path) -> None:
    path = transcript(tmp_path, "make dock PUMP=1", "make dock PUMP=1", "ls")
    assert commands_in(str(path)) == ["make dock PUMP=1"]


@pytest.mark.parametrize("name", ["", "relative.jsonl", "/nowhere/x.jsonl", "/etc/hosts"])
def test_a_file_that_is_not_a_transcript_has_no_commands(name: str) -> None:
    assert list(commands_in(name)) == []


def test_only_the_end_of_a_long_transcript_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = transcript(tmp_path, *["make old A=1"] * 9, *["make dock PUMP=1"] * 2)
    last = path.read_bytes().index(b"PUMP=1")
    monkeypatch.setattr(memory, "MAX_TRANSCRIPT_BYTES", path.stat().st_size - last + 400)
    assert commands_in(str(path)) == ["make dock PUMP=1"]
