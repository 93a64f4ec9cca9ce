"""A project in `projects.exclude`, at every door: hooks, gateway, import and learning."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Upwell
from tests.doors.conftest import Gateway, script, write_config
from tests.doors.peer import text_of
from tests.doors.servers.data import big_json

QUESTION = "which note does the kettle whistle?"
FACT = "The kettle whistles in B flat"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "secret" / ".git").mkdir(parents=True)
    return tmp_path / "secret"


@pytest.fixture
def exclude(home: Path, secret: Path) -> Callable[[], None]:
    return lambda: write_config(home, {}, projects={"exclude": [str(secret)]})


def prompted(upwell: Upwell, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The answer to a prompt in this folder, and the folders of the recorded events."""
    event = {
        "hook_event_name": "UserPromptSubmit", "session_id": f"s-{time.monotonic_ns()}",
        "cwd": str(folder), "prompt": QUESTION,
    }  # fmt: skip
    answer = json.loads(upwell("hook", "claude", input=json.dumps(event)).out)
    rows = upwell("top", "--once", "--json").out.splitlines()
    return answer, [json.loads(row)["project"] for row in rows]


def test_hooks_answer_and_record_nothing(
    upwell: Upwell, exclude: Callable[[], None], secret: Path, tmp_path: Path
) -> None:
    upwell("remember", FACT, cwd=tmp_path)
    exclude()
    upwell("daemon", "start")
    try:
        answer, projects = prompted(upwell, secret)
        assert (answer, projects) == ({}, [])
        (tmp_path / "open").mkdir()
        _, projects = prompted(upwell, tmp_path / "open")
        assert projects == [str(tmp_path / "open")], "other projects are recorded"
    finally:
        upwell("daemon", "stop")


def test_off_in_a_project_silences_it_until_on(
    upwell: Upwell, home: Path, secret: Path, tmp_path: Path
) -> None:
    """The running daemon reads the change, and comments in config.toml stay."""
    upwell("remember", FACT, cwd=tmp_path)
    (home / "config.toml").write_text("# mine\n[projects]\nexclude = ['other-*'] # also mine\n")
    (secret / "src").mkdir()
    upwell("daemon", "start")
    try:
        done = upwell("off", "--project", cwd=secret / "src")
        assert done.out.startswith(f"upwell is off in {secret} (")
        assert eventually(lambda: prompted(upwell, secret)[0] == {})
        time.sleep(1.5)  # the decisions of earlier prompts are stored within half a second
        before = prompted(upwell, secret)[1]
        assert prompted(upwell, secret)[1] == before, "nothing more is recorded"
        assert "off in this project" in upwell("doctor", cwd=secret).out
        assert "off in this project" not in upwell("doctor", cwd=tmp_path).out
        assert "upwell stays off in this project" in upwell("on", cwd=secret).err
        assert upwell("on", "--project", cwd=secret).code == 0
        assert eventually(lambda: FACT in str(prompted(upwell, secret)[0]))
    finally:
        upwell("daemon", "stop")
    text = (home / "config.toml").read_text()
    assert "# mine" in text
    assert "# also mine" in text
    assert "secret" not in text


def test_on_names_a_pattern_that_still_excludes_the_project(
    upwell: Upwell, home: Path, secret: Path
) -> None:
    write_config(home, {}, projects={"exclude": ["sec*"]})
    done = upwell("on", "--project", cwd=secret)
    assert done.code == 2
    assert "'sec*'" in done.err


def test_the_home_folder_is_no_project(
    upwell: Upwell, home: Path, environment: dict[str, str]
) -> None:
    done = upwell("off", "--project", cwd=Path(environment["HOME"]))
    assert done.code == 2
    assert "is not a project" in done.err
    assert not (home / "config.toml").exists()


def test_a_folder_with_signs_of_patterns_is_meant_literally(upwell: Upwell, tmp_path: Path) -> None:
    for name in ("a[b]", "ab"):
        (tmp_path / name / ".git").mkdir(parents=True)
    upwell("off", "--project", cwd=tmp_path / "a[b]")
    assert "off in this project" in upwell("doctor", cwd=tmp_path / "a[b]").out
    assert "off in this project" not in upwell("doctor", cwd=tmp_path / "ab").out
    assert upwell("on", "--project", cwd=tmp_path / "a[b]").code == 0
    assert "off in this project" not in upwell("doctor", cwd=tmp_path / "a[b]").out


def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if condition():
            return True
        time.sleep(0.1)
    return False


def test_the_gateway_passes_results_unchanged_and_records_nothing(
    gateway: Gateway, upwell: Upwell, secret: Path
) -> None:
    projects = {"exclude": [str(secret)]}
    peer = gateway({"up": script("upstream")}, cwd=secret, projects=projects)
    peer.wait_for_tools("up__big_json")
    assert text_of(peer.call("up__big_json")) == big_json()
    peer.close()
    assert upwell("top", "--once", "--json").out == ""


def test_the_gateway_does_not_cache_results(gateway: Gateway, secret: Path) -> None:
    settings = {"projects": {"exclude": [str(secret)]}, "cache": {"tools": ["up__read"]}}
    peer = gateway({"up": script("upstream")}, cwd=secret, **settings)
    peer.wait_for_tools("up__read")
    # Each result has the line that the server received, which differs for every call.
    results = {text_of(peer.call("up__read", path="a")) for _ in range(3)}
    assert len(results) == 3


def test_the_gateway_counts_a_call_for_the_agent_that_made_it(
    gateway: Gateway, upwell: Upwell, tmp_path: Path
) -> None:
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__big_json")
    peer.call("up__big_json")
    peer.close()
    rows = upwell("stats", "--by", "host", "--json").json["rows"]
    assert rows
    assert all(row["name"] for row in rows), "no host is unknown"


def test_import_refuses_its_files(
    upwell: Upwell, exclude: Callable[[], None], secret: Path
) -> None:
    (secret / "notes.md").write_text(f"# Kettle\n\n{FACT}.\n")
    exclude()
    done = upwell("import", str(secret / "notes.md"))
    assert done.code == 2
    assert "excluded project" in done.err
    assert upwell("import", "--json").json == {"sources": [], "folder": None}


def test_learning_reads_neither_its_commits_nor_its_sessions(
    upwell: Upwell, home: Path, exclude: Callable[[], None], secret: Path, tmp_path: Path
) -> None:
    transcript = tmp_path / "s.jsonl"
    error = "Exit code 2\nerror: the option --lid is required"
    entries = []
    for number, (command, out) in enumerate([("bake bread", error), ("bake bread --lid", "done")]):
        use = {
            "type": "tool_use",
            "id": f"t{number}",
            "name": "Bash",
            "input": {"command": command},
        }
        result = {
            "type": "tool_result", "tool_use_id": f"t{number}", "content": out,
            "is_error": out == error,
        }  # fmt: skip
        for role, content in (("assistant", [use]), ("user", [result])):
            message = {"role": role, "content": content}
            entries.append({"type": role, "sessionId": "s", "cwd": str(secret), "message": message})
    transcript.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    subprocess.run(["git", "init", "-q", str(secret)], check=True)
    exclude()
    refused = upwell("learn", "git", str(secret))
    assert refused.code == 2
    assert "excluded project" in refused.err
    assert upwell("learn", "sessions", str(transcript), "--json").json["proposed"] == 0
    write_config(home, {})
    again = upwell("learn", "sessions", str(transcript), "--again", "--json")
    assert again.json["proposed"] == 1


def test_a_project_gets_its_folder_on_this_machine(upwell: Upwell, tmp_path: Path) -> None:
    old, new = "/home/ada/shop", tmp_path / "shop"
    rows = [{"text": FACT, "project": old}, {"text": "Tea is served at four", "project": "/other"}]
    path = tmp_path / "memories.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert upwell("import", str(path), "--project", f"{old}={new}").code == 0
    lines = upwell("export").out.splitlines()
    projects = {json.loads(line)["text"]: json.loads(line)["project"] for line in lines}
    assert projects == {FACT: str(new), "Tea is served at four": "/other"}
    assert upwell("import", str(path), "--project", "no equals").code == 2
