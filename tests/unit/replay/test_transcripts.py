"""Every reader, over a small file in its host's own shape."""

import os
import sqlite3
import subprocess
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.unit.replay import samples

from upwell.episodes.events import Kind, SessionEvent
from upwell.ground.errors import UsageError
from upwell.replay.transcripts import (
    FORMATS,
    format_named,
    specstory,
    transcripts_at,
    transcripts_of_user,
)
from upwell.replay.transcripts.base import (
    ReadTally,
    TranscriptFormat,
    UnreadableTranscript,
    moment,
    records,
    text_of,
)


def told(path: Path) -> list[SessionEvent]:
    (transcript,) = transcripts_at([path])
    return list(transcript.events())


def brief(events: list[SessionEvent]) -> list[tuple[str, str, bool]]:
    """The kind, the text or the tool with its arguments, and whether it failed."""
    return [
        (
            str(event.kind),
            event.text or f"{event.tool} {dict(event.args)}" * bool(event.tool),
            event.failed,
        )
        for event in events
    ]


def test_claude_code(tmp_path: Path) -> None:
    events = told(samples.claude(tmp_path))
    assert brief(events) == [
        ("start", "startup", False),
        ("prompt", "Why does the pump stall?", False),
        ("say", "I look.", False),
        ("tool", "Read {'file_path': '/code/harbour/pump.py'}", False),
        ("tool", "Bash {'command': 'make test'}", True),
        ("compact", "", False),
        ("prompt", "/review the pump", False),
        ("end", "", False),
    ]
    assert {event.session for event in events} == {samples.SESSION}
    assert {event.cwd for event in events} == {"/code/harbour"}
    assert {event.host for event in events} == {"claude"}
    assert [event.i for event in events] == list(range(8))
    assert events[1].t == moment("2026-01-05T10:00:00Z")
    assert events[3].out == "def pump(): ..."


def test_a_call_that_the_user_refused_did_not_happen(tmp_path: Path) -> None:
    refusal = "The user doesn't want to proceed with this tool use. The tool use was rejected"
    records = [
        samples.claude_record("user", "10:00:00", "Delete it"),
        samples.claude_call("10:00:01", "Bash", command="rm -r pumps"),
        samples.claude_result("10:00:02", refusal, is_error=True),
    ]
    path = samples.lines(tmp_path / f"{samples.SESSION}.jsonl", records)
    assert [str(entry.kind) for entry in told(path)] == ["start", "prompt", "end"]


def test_codex(tmp_path: Path) -> None:
    events = told(samples.codex(tmp_path))
    assert brief(events)[:3] == [
        ("start", "startup", False),
        ("prompt", "Fix the tide table", False),
        ("tool", "Bash {'command': 'pytest -q'}", True),
    ]
    assert events[3].tool == "Edit"
    assert events[3].args["file_path"] == "src/tide.py"
    assert [str(entry.kind) for entry in events[4:]] == ["say", "compact", "end"]
    assert events[0].session == samples.SESSION
    assert events[0].cwd == "/code/harbour"


def test_codex_without_events_of_prompts(tmp_path: Path) -> None:
    asked = {"type": "input_text", "text": "Fix the tide table"}
    records = [
        {"id": samples.SESSION, "timestamp": "2025-05-01T00:00:00Z", "instructions": None},
        {"type": "message", "role": "user", "content": [asked]},
    ]
    events = told(samples.lines(tmp_path / "rollout-2025-05-01.jsonl", records))
    assert brief(events)[1] == ("prompt", "Fix the tide table", False)


@pytest.mark.parametrize("write", [samples.gemini, samples.gemini_lines])
def test_gemini_cli(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    events = told(write(tmp_path))
    assert brief(events) == [
        ("start", "startup", False),
        ("prompt", "Where are the buoys?", False),
        ("say", "I search.", False),
        ("tool", "Grep {'pattern': 'buoy'}", False),
        ("end", "", False),
    ]
    assert events[3].out == "no buoys"
    assert events[3].t == moment("2026-01-05T12:00:02Z")


def test_gemini_cli_records_the_folder_of_a_session(tmp_path: Path) -> None:
    assert told(samples.gemini(tmp_path))[0].cwd == "/code/harbour"


def test_copilot_cli(tmp_path: Path) -> None:
    events = told(samples.copilot(tmp_path))
    assert brief(events) == [
        ("start", "startup", False),
        ("prompt", "Find the mooring", False),
        ("tool", "Grep {'pattern': 'mooring'}", False),
        ("tool", "mcp__linear__get_issue {'id': 'H-1'}", True),
        ("say", "Found.", False),
        ("compact", "", False),
        ("end", "", False),
    ]
    assert events[2].out == "3 matches"
    assert events[3].out == "no such issue"
    assert events[0].cwd == "/code/harbour"


@pytest.mark.parametrize("write", [samples.opencode, samples.opencode_database])
def test_opencode(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    events = told(write(tmp_path))
    assert brief(events) == [
        ("start", "startup", False),
        ("prompt", "Why does the crane stop?", False),
        ("tool", "Read {'file_path': '/code/harbour/crane.py'}", True),
        ("say", "It is gone.", False),
        ("compact", "", False),
        ("end", "", False),
    ]
    assert events[1].t == 1_767_614_400
    assert events[2].t == 1_767_614_403
    assert {event.cwd for event in events} == {"/code/harbour"}


def test_reading_a_database_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = samples.opencode_database(tmp_path)
    before = path.read_bytes(), sorted(os.listdir(path.parent))
    told(path)
    assert (path.read_bytes(), sorted(os.listdir(path.parent))) == before


def test_an_export_of_opencode(tmp_path: Path) -> None:
    messages = [
        {"info": entry, "parts": samples.OPENCODE_PARTS[str(entry["id"])]}
        for entry in samples.OPENCODE_MESSAGES
    ]
    value = {"info": samples.OPENCODE_SESSION, "messages": messages}
    path = samples.whole(tmp_path / "export.json", value)
    assert brief(told(path)) == brief(told(samples.opencode(tmp_path)))


def test_specstory_with_times(tmp_path: Path) -> None:
    events = told(samples.specstory(tmp_path))
    assert brief(events) == [
        ("start", "startup", False),
        ("prompt", "Which gate leaks?", False),
        ("say", "I look at the gates.", False),
        ("tool", "Read {'file_path': './gates.md'}", False),
        ("tool", "Bash {'command': 'make gates'}", True),
        ("end", "", False),
    ]
    assert "quoted" in events[3].out
    assert events[4].out == "Exit code 1\ngate 3 leaks"
    assert events[0].session == samples.SESSION
    assert events[0].cwd == str(tmp_path / "harbour")
    assert events[4].t == moment("2026-01-05T14:00:05Z")


def test_a_call_with_words_of_its_own_is_an_event_and_a_repeated_heading_is_none(
    tmp_path: Path,
) -> None:
    path = tmp_path / ".specstory/history/2026-01-05_14-00-00Z-list.md"
    path.parent.mkdir(parents=True)
    call = '<tool-use data-tool-type="{}" data-tool-name="{}">\n{}</tool-use>\n\n'
    listed = "<details><summary>Tool use: **todo_write** • Todo List</summary>\n\n- [ ] Oil\n\n"
    heading = "<details><summary>Tool use: **run**</summary>\n</details>\n"
    path.write_text(
        "<!-- Generated by SpecStory, Markdown v2.1.0 -->\n\n"
        "_**User (2026-01-05 14:00Z)**_\n\nOil the pump\n\n_**Agent (model m)**_\n\n"
        + call.format("task", "todo_write", listed + "</details>\n")
        + call.format("unknown", "run", heading)
        + call.format("search", "codebase_search", "\n")
    )
    calls = [event for event in told(path) if event.kind is Kind.TOOL]
    assert [(event.tool, event.out) for event in calls] == [("todo_write", ""), ("Grep", "")]


def test_specstory_with_the_arguments_in_the_title_of_a_call(tmp_path: Path) -> None:
    assert brief(told(samples.specstory_titled(tmp_path)))[2:-1] == [
        ("tool", "Read {'file_path': 'src/gate one.py'}", False),
        ("tool", "Edit {'file_path': 'src/gate.py'}", False),
        ("tool", "Grep {'pattern': 'open_gate|close_gate', 'path': 'src'}", False),
        ("tool", "Grep {'pattern': 'nothing_here'}", False),
    ]
    found, nothing = told(samples.specstory_titled(tmp_path))[4:6]
    assert "`src/gate.py`" in found.out
    assert nothing.out == "No matches found"


def test_specstory_without_times(tmp_path: Path) -> None:
    events = told(samples.specstory_old(tmp_path))
    assert brief(events) == [
        ("start", "startup", False),
        ("prompt", "start task 7", False),
        ("say", "I'll read it.", False),
        ("tool", "Read {'file_path': 'tasks/007.md'}", False),
        ("tool", "Bash {'command': 'make lock'}", False),
        ("tool", "Grep {'pattern': 'lock gate'}", False),
        ("say", "That is all.", False),
        ("end", "", False),
    ]
    times = [event.t for event in events]
    assert times == sorted(times)
    assert times[0] >= moment("2026-01-05T15:00:00Z")


def test_a_folder_gives_all_of_them_and_nothing_else(tmp_path: Path) -> None:
    paths = {write(tmp_path / name) for name, write in samples.WRITERS.items()}
    (tmp_path / "notes.md").write_text("# Notes\n")
    (tmp_path / "data.jsonl").write_text('{"a": 1}\n')
    assert {entry.path for entry in transcripts_at([tmp_path])} == paths


def test_host_limits_what_a_folder_gives(tmp_path: Path) -> None:
    for name, write in samples.WRITERS.items():
        write(tmp_path / name)
    result = transcripts_at([tmp_path], format_named("codex"))
    assert [entry.format.name for entry in result] == ["codex"]


def test_the_transcripts_of_a_user_are_found_where_hosts_keep_them(tmp_path: Path) -> None:
    home = tmp_path / "user"
    for write in (samples.claude, samples.codex, samples.gemini, samples.copilot):
        write(home)
    samples.opencode(home)
    samples.lines(
        home / ".claude/projects/-code-harbour/agent-1.jsonl",
        [samples.claude_record("user", "10:00:00", "Look", isSidechain=True)],
    )
    history = samples.specstory(tmp_path)
    result = transcripts_of_user(home, history.parents[2], None)
    names = sorted(entry.format.name for entry in result)
    assert names == ["claude", "codex", "copilot", "gemini", "opencode", "specstory"]


def histories(cwd: Path) -> list[str]:
    return [entry.path.name for entry in transcripts_of_user(cwd / "user", cwd, None)]


def test_a_history_that_came_with_the_repository_is_not_the_users(tmp_path: Path) -> None:
    own = samples.specstory(tmp_path)
    root = own.parents[2]
    git = partial(subprocess.run, cwd=root, check=True, capture_output=True)
    git(["git", "init", "-q"])
    assert histories(root) == [own.name]
    theirs = samples.specstory_old(tmp_path)
    git(["git", "add", str(theirs)])
    assert histories(root) == [], "nothing tells which of them are the user's"
    assert len(transcripts_at([own.parent])) == 2, "the user may name them"


def test_links_lead_to_no_history(tmp_path: Path) -> None:
    own = samples.specstory(tmp_path / "own")
    for name in ("file", "history", "specstory"):
        (tmp_path / name / ".specstory/history").mkdir(parents=True)
    (tmp_path / "file/.specstory/history/a.md").symlink_to(own)
    (tmp_path / "history/.specstory/history").rmdir()
    (tmp_path / "history/.specstory/history").symlink_to(own.parent)
    (tmp_path / "specstory/.specstory/history").rmdir()
    (tmp_path / "specstory/.specstory").rmdir()
    (tmp_path / "specstory/.specstory").symlink_to(own.parents[1])
    for name in ("file", "history", "specstory"):
        assert histories(tmp_path / name) == []
    assert transcripts_at([tmp_path / "file"]) == []
    (tmp_path / "link").symlink_to(own.parents[2])
    assert histories(tmp_path / "link") == [own.name]


@pytest.mark.parametrize("line", ["_**User**_\n\nhi\n\n", "Read file: a\n"])
def test_a_small_history_does_not_become_millions_of_events(tmp_path: Path, line: str) -> None:
    path = samples.specstory(tmp_path)
    path.write_text(f"{samples.SPECSTORY.splitlines()[0]}\n_**Agent**_\n\n" + line * 100_000)
    assert len(told(path)) <= specstory.MAX_EVENTS + 2


def test_a_huge_history_is_not_read(tmp_path: Path) -> None:
    path = samples.specstory(tmp_path)
    os.truncate(path, specstory.MAX_FILE_BYTES + 1)
    with pytest.raises(UnreadableTranscript, match="over 32 MB"):
        told(path)


def test_a_file_that_is_not_a_transcript_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text("# Notes\n")
    with pytest.raises(UsageError, match=r"notes.md is not a transcript"):
        transcripts_at([path])


SAMPLES = {"events": samples.neutral}
"""The sample of each format; by default the function in `samples.py` with the format's name."""


@pytest.mark.parametrize("reader", [pytest.param(reader, id=reader.name) for reader in FORMATS])
def test_every_reader_recognises_its_own_sample_and_finds_its_events(
    reader: TranscriptFormat, tmp_path: Path
) -> None:
    write = SAMPLES.get(reader.name) or getattr(samples, reader.name, None)
    assert write, f"write `{reader.name}` in tests/unit/replay/samples.py"
    (result,) = transcripts_at([write(tmp_path)])
    assert result.format is reader, "a format before it in FORMATS takes its files"
    kinds = {event.kind for event in result.events()}
    assert {Kind.PROMPT, Kind.TOOL} <= kinds


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1_767_614_400, 1_767_614_400.0),
        (1_767_614_400_000, 1_767_614_400.0),
        ("2026-01-05T12:00:00Z", 1_767_614_400.0),
        ("2026-01-05T12:00:00", 1_767_614_400.0),
        ("soon", 0.0),
        (None, 0.0),
        (True, 0.0),
        (-5, 0.0),
        (float("inf"), 0.0),
    ],
)
def test_times_are_read_in_every_notation(value: object, expected: float) -> None:
    assert moment(value) == expected


def test_a_line_without_an_end_is_skipped_and_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"n": 1}\n')
    os.truncate(path, 300_000_000)
    with path.open("ab") as file:
        file.write(b'\n{"n": 2}\n')
    tracemalloc.start()
    found = [entry for _, entry in records(path, 0, ReadTally())]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [{"n": 1}, {"n": 2}]
    assert peak < 200_000_000


def test_views_in_a_database_of_opencode_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            """
            CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, data TEXT);
            CREATE TABLE part (id TEXT, message_id TEXT, data TEXT);
            CREATE VIEW session AS
            WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c)
            SELECT n AS id, '/' AS directory, n AS time_created, NULL AS parent_id FROM c
            """
        )
    with pytest.raises(UnreadableTranscript, match="prohibited"):
        list(format_named("opencode").read(path, 0, ReadTally()))


def test_text_that_lies_very_deep_is_left_out() -> None:
    deep: object = "deep"
    for _ in range(2_000):
        deep = [{"content": deep}, {"text": "near"}]
    assert text_of(deep).startswith("near\nnear")
    assert "deep" not in text_of(deep)
