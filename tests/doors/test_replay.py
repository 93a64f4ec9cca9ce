"""`upwell replay` over small folders of transcripts and a repository with a history."""

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Upwell
from tests.unit.replay import samples
from tests.unit.replay.repository import at, commit, git, repository

PUMP = "The harbour pump stalls because the intake grille ices over below minus five degrees."
DOC = "# Pumps\n\nThe harbour pump is restarted with `make pump-restart`, never by its switch.\n"
LATER = "# Pumps\n\nThe harbour pump was replaced by a siphon, so nobody restarts the pump.\n"
NOTE_BEFORE = "Ask Ines before the harbour pump is stopped: her boats are moored there."
NOTE_AFTER = "The harbour pump was sold in spring."
NO_VARIABLES: Mapping[str, str] = {}
EVERY_MOMENT = {"UPWELL_SURFACE__MOMENTS": "all"}
QUESTION = "Why does the harbour pump stall, and how is it restarted?"


@pytest.fixture
def harbour(tmp_path: Path) -> Path:
    """Commits of 1, 3 and 20 January 2026; the sessions are of the 5th."""
    folder = repository(tmp_path / "code/harbour")
    commit(folder, at(1), "Begin", {"README.md": "# Harbour\n", "src/pump.py": "x = 1\n"})
    commit(
        folder, at(3), f"Fix the pump\n\n{PUMP}", {"docs/pump.md": DOC, "src/pump.py": "x = 2\n"}
    )
    siphon = "Replace the pump\n\nThe harbour pump was replaced by a siphon because it froze."
    commit(folder, at(20), siphon, {"docs/pump.md": LATER, "src/pump.py": "x = 3\n"})
    return folder


@pytest.fixture
def sessions(tmp_path: Path, harbour: Path) -> Path:
    """A Claude Code session on this machine, and a SpecStory history from another machine."""
    cwd = str(harbour)
    records = [
        samples.claude_record("user", "10:00:00", QUESTION, cwd=cwd),
        samples.claude_record("assistant", "10:00:01", [{"type": "text", "text": "I look."}]),
        samples.claude_call("10:00:02", "Read", file_path=f"{cwd}/src/pump.py"),
        samples.claude_result("10:00:03", "x = 2"),
        samples.claude_call("10:00:04", "Edit", "t2", file_path=f"{cwd}/src/pump.py"),
        samples.claude_result("10:00:05", "ok", "t2"),
        samples.claude_call("10:01:04", "Bash", "t3", command="ls /nowhere"),
        samples.claude_result("10:01:05", "Exit code 2", "t3", is_error=True),
    ]
    for record in records:
        record["cwd"] = cwd
    folder = tmp_path / "sessions"
    samples.lines(folder / f"{samples.SESSION}.jsonl", records)
    history = folder / ".specstory/history/2026-01-06_09-00-00Z-pump.md"
    history.parent.mkdir(parents=True)
    other = samples.SPECSTORY.replace("97259dc5", "11111111").replace("2026-01-05", "2026-01-06")
    history.write_text(other.replace("Which gate leaks?", QUESTION))
    return folder


@pytest.fixture
def remembered(home: Path, upwell: Upwell, harbour: Path, tmp_path: Path) -> Path:
    """The user's own notes: one from before the sessions, one from after them."""
    notes = [
        {"id": "before", "text": NOTE_BEFORE, "created_at": "2026-01-02T00:00:00Z"},
        {"id": "after", "text": NOTE_AFTER, "created_at": "2026-02-02T00:00:00Z"},
    ]
    path = samples.lines(tmp_path / "notes.jsonl", notes)
    assert upwell("import", str(path)).code == 0
    return home


def told(upwell: Upwell, *args: str, env: Mapping[str, str] = NO_VARIABLES) -> list[dict[str, Any]]:
    done = upwell("replay", "--json", *args, env=env)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def said(decisions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [memory for decision in decisions for memory in decision.get("memories", ())]


def digest(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        + str(path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_decisions_have_the_documented_shape(
    upwell: Upwell, sessions: Path, harbour: Path, remembered: Path
) -> None:
    *decisions, last = told(upwell, str(sessions), "--repo", str(harbour))
    keys = {"session", "i", "t", "door", "moment", "outcome", "memories", "tokens"}
    assert {frozenset(decision) for decision in decisions} == {frozenset(keys)}
    assert {decision["door"] for decision in decisions} == {"session", "prompt", "tool"}
    claude = [decision for decision in decisions if decision["session"] == samples.SESSION]
    assert [decision["moment"] for decision in claude] == [
        "session_start",
        "question",
        "file",
        "routine",
        "failed",
    ]
    assert [decision["outcome"] for decision in claude][3] == "no_hook"
    for memory in said(decisions):
        assert set(memory) == {"id", "kind", "source", "score", "text", "trigger", "created_at"}
        assert 0 < memory["score"] <= 1
    shortening = last["summary"].pop("shortening")
    assert shortening["results"] > 0
    assert shortening["saved"] == shortening["shortened"] == 0
    assert last == {
        "summary": {
            "sessions": 2,
            "events": len(decisions),
            "said": sum(decision["outcome"] == "said" for decision in decisions),
            "memories": len(said(decisions)),
            "tokens": sum(decision["tokens"] for decision in decisions),
        }
    }


def test_only_memories_of_that_time_surface(
    upwell: Upwell, sessions: Path, harbour: Path, remembered: Path
) -> None:
    decisions = told(upwell, str(sessions), "--repo", str(harbour))[:-1]
    texts = " ".join(memory["text"] for memory in said(decisions))
    kinds = {memory["kind"] for memory in said(decisions)}
    assert "ices over" in texts
    assert {"commit", "note"} <= kinds
    assert "siphon" not in texts
    assert "sold in spring" not in texts
    for decision in decisions:
        for memory in decision["memories"]:
            if memory["created_at"]:
                assert memory["created_at"] <= time.strftime(
                    "%Y-%m-%dT%H:%M:%SZ", time.gmtime(decision["t"])
                )
    assert "/uw-" not in json.dumps(decisions), "the scratch folder shows nowhere"


def test_later_sessions_know_more(
    upwell: Upwell, sessions: Path, harbour: Path, remembered: Path
) -> None:
    for path in (*sessions.glob("*.jsonl"), *sessions.rglob("*.md")):
        text = (
            path.read_text().replace("2026-01-05", "2026-03-05").replace("2026-01-06", "2026-03-06")
        )
        path.write_text(text)
        path.rename(path.with_name(path.name.replace("2026-01", "2026-03")))
    texts = json.dumps(told(upwell, str(sessions), "--repo", str(harbour), env=EVERY_MOMENT))
    assert "siphon" in texts
    assert "sold in spring" in texts


def test_two_replays_print_the_same_bytes(
    upwell: Upwell, sessions: Path, harbour: Path, remembered: Path
) -> None:
    args = ("replay", "--json", str(sessions), "--repo", str(harbour))
    assert upwell(*args).out == upwell(*args).out


def test_the_home_and_the_repository_stay_unchanged(
    upwell: Upwell, sessions: Path, harbour: Path, remembered: Path, tmp_path: Path
) -> None:
    before = digest(tmp_path)
    assert upwell("replay", str(sessions), "--repo", str(harbour)).code == 0
    assert digest(tmp_path) == before


def test_a_missing_home_is_not_created(
    upwell: Upwell, sessions: Path, harbour: Path, home: Path
) -> None:
    assert upwell("replay", str(sessions), "--repo", str(harbour)).code == 0
    assert not home.exists()


def test_with_chooses_the_kinds_of_memory(
    upwell: Upwell, sessions: Path, harbour: Path, remembered: Path
) -> None:
    for chosen, kinds in (("git", {"commit"}), ("memory", {"note"}), ("docs", {"doc"})):
        decisions = told(upwell, str(sessions), "--repo", str(harbour), "--with", chosen)
        assert {memory["kind"] for memory in said(decisions)} <= kinds
    assert not said(told(upwell, str(sessions), "--repo", str(harbour), "--with", ""))


def test_without_paths_the_agents_own_transcripts_are_read(
    upwell: Upwell, tmp_path: Path, harbour: Path, environment: Mapping[str, str]
) -> None:
    user = Path(environment["HOME"])
    name = samples.SESSION.replace("9", "8")
    record = samples.claude_record("user", "10:00:00", QUESTION) | {"cwd": str(harbour)}
    samples.lines(user / ".claude/projects/-code-harbour" / f"{name}.jsonl", [record])
    samples.codex(user)
    assert told(upwell)[-1]["summary"]["sessions"] == 2
    assert "ices over" in json.dumps(told(upwell)), "a folder that is there has its history"
    only = told(upwell, "--repo", str(harbour))
    assert [entry["outcome"] for entry in only if entry.get("moment") == "question"] == ["said"]
    assert "ices over" in json.dumps(only)


def test_the_report_for_people(upwell: Upwell, sessions: Path, harbour: Path) -> None:
    done = upwell("replay", str(sessions), "--repo", str(harbour), env={"NO_COLOR": "1"})
    assert done.code == 0
    assert samples.SESSION in done.out
    assert "ices over" in done.out
    rows = [line.split("\t") for line in done.out.splitlines() if "\t" in line]
    assert rows[-1][0] == "all"
    assert "1  hooks do not report these events" in done.out
    assert "\x1b" not in done.out
    assert done.out.endswith("and the lessons of earlier sessions: see --with\n")
    assert "Nothing would have been said" not in done.out


def test_a_report_without_any_memory_says_what_it_read_and_why(
    upwell: Upwell, sessions: Path, harbour: Path
) -> None:
    given = ("replay", str(sessions), "--repo", str(harbour), "--with", "memory")
    done = upwell(*given)
    read = "Nothing would have been said: the replay read 2 prompts and 5 calls in 2 sessions, and "
    assert f"{read}there was no memory at the time.\nupwell speaks when " in done.out
    assert "The most common reason" not in done.out
    assert "--repo DIR" not in done.out
    assert "Assumes that" not in done.out
    summary = json.loads(upwell(*given, "--json").out.splitlines()[-1])["summary"]
    assert summary["silence"].startswith(read)


def test_a_report_counts_the_memories_that_were_silent_and_those_that_came_later(
    upwell: Upwell, sessions: Path, remembered: Path
) -> None:
    env = {"UPWELL_SURFACE__MIN_SCORE": "1.0"}
    done = upwell("replay", str(sessions), "--with", "memory", env=env)
    assert (
        "and none of the memories at the time (1 note) qualified; 1 memory of yours is younger "
        "than that.\nThe most common reason: no memory shares a specific word, file or "
        "name with this event.\nupwell speaks when "
    ) in done.out


def test_a_folder_that_is_no_longer_a_repository_is_named_as_a_reason(
    upwell: Upwell, tmp_path: Path
) -> None:
    record = samples.claude_record("user", "10:00:00", QUESTION) | {"cwd": "/nowhere"}
    samples.lines(tmp_path / "past" / f"{samples.SESSION}.jsonl", [record])
    done = upwell("replay", str(tmp_path / "past"))
    assert "the replay read 1 prompt in 1 session, and there was no memory at the time." in done.out
    assert "--repo DIR sets the repository of all sessions." in done.out


def test_events_can_be_written_and_replayed_again(
    upwell: Upwell, sessions: Path, harbour: Path, tmp_path: Path
) -> None:
    written = upwell("replay", str(sessions), "--events")
    assert written.code == 0
    path = tmp_path / "events.jsonl"
    path.write_text(written.out)
    first = told(upwell, str(sessions), "--repo", str(harbour))
    assert told(upwell, str(path), "--repo", str(harbour)) == first


def test_labels_and_their_interval(upwell: Upwell, sessions: Path, harbour: Path) -> None:
    args = ("replay", str(sessions), "--repo", str(harbour), "--sample", "2", "--label")
    done = upwell(*args, input="what\ny\n?\n")
    assert done.code == 0, done.err
    assert "1 of 1 useful: 100% (95 % interval 21% to 100%)" in done.out
    assert upwell(*args, input="q\n").out.endswith("Nothing was labelled.\n")
    assert "Nothing was labelled" in upwell(*args, input="").out


def test_a_threshold_is_written_only_on_request_and_with_consent(
    upwell: Upwell, harbour: Path, home: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "many"
    for number in range(25):
        name = f"{number:08x}{samples.SESSION[8:]}"
        record = samples.claude_record("user", f"10:{number:02}:00", QUESTION)
        record |= {"cwd": str(harbour), "sessionId": name}
        samples.lines(folder / f"{name}.jsonl", [record])
    args = ("replay", str(folder), "--repo", str(harbour), "--sample", "24", "--label", "--fit")
    done = upwell(*args, input="y\n" * 24 + "n\n", env=EVERY_MOMENT)
    assert "surface.min_score" in done.out
    assert not home.exists()
    done = upwell(*args, input="y\n" * 25, env=EVERY_MOMENT)
    assert "min_score" in (home / "config.toml").read_text()
    assert upwell("config", "check").code == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("gone",), "cannot replay gone: it does not exist"),
        (("--host", "vim"), "'vim' is not a host"),
        (("--with", "dreams"), "--with 'dreams' is unknown"),
        (("--since", "soon"), "--since 'soon' is not a time"),
        (("--label",), "--sample and --label go together"),
        (("--fit",), "--fit goes with --label"),
        (("--repo", "gone"), "--repo gone is not a folder"),
        ((), "no transcripts were found"),
        (("--sample", "0", "--label"), "--sample is '0'"),
    ],
)
def test_a_usage_error_is_one_line(upwell: Upwell, args: tuple[str, ...], message: str) -> None:
    done = upwell("replay", *args)
    assert done.code == 2
    assert done.out == ""
    assert message in done.err
    assert len(done.err.splitlines()) == 1


def test_a_folder_without_a_repository_is_one_line(upwell: Upwell, sessions: Path) -> None:
    done = upwell("replay", str(sessions), "--repo", str(sessions))
    assert done.code == 2
    assert "git cannot read" in done.err
    assert len(done.err.splitlines()) == 1


def test_a_broken_transcript_costs_only_that_file(
    upwell: Upwell, sessions: Path, harbour: Path
) -> None:
    (sessions / "broken.jsonl").write_text('{"session": "s", "kind": "prompt"}\n')
    done = upwell("replay", "--json", str(sessions), "--repo", str(harbour))
    assert done.code == 0
    assert "broken.jsonl is left out" in done.err
    assert len(done.err.splitlines()) == 1
    assert json.loads(done.out.splitlines()[-1])["summary"]["sessions"] == 2


def test_ctrl_c_ends_a_replay_with_the_figures_so_far(
    environment: Mapping[str, str], harbour: Path, tmp_path: Path
) -> None:
    records = [
        samples.claude_record("user", f"{hour:02}:{minute:02}:00", f"{QUESTION} {hour}{minute}")
        for hour in range(24)
        for minute in range(60)
    ]
    path = samples.lines(tmp_path / f"{samples.SESSION}.jsonl", records)
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    command = [
        sys.executable,
        "-m",
        "upwell",
        "replay",
        str(path),
        "--repo",
        str(harbour),
        "--json",
    ]
    running = subprocess.Popen(
        command,
        env={**environment, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout
    running.stdout.readline()
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert b"interrupted" in err
    assert b"Traceback" not in err
    assert "summary" in json.loads(out.splitlines()[-1])
    assert list(scratch.iterdir()) == []


def test_the_repository_may_be_bare(
    upwell: Upwell, sessions: Path, harbour: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "-q", "--bare", str(harbour), str(bare))
    assert "ices over" in json.dumps(told(upwell, str(sessions), "--repo", str(bare)))
