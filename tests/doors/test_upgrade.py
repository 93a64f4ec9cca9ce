"""Homes of other versions."""

import json
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import Upwell

ROOT = Path(__file__).parents[2]


def test_uv_sees_a_new_commit_as_another_build() -> None:
    """Without the commit among the keys, `uv tool upgrade` finds nothing to upgrade after
    `git pull`, because the version stays the same between releases."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {"git": {"commit": True}} in pyproject["tool"]["uv"]["cache-keys"]


@pytest.mark.parametrize(
    ("version", "what", "hint"),
    [
        ("version + 90", "was written by a later upwell", "upgrade upwell"),
        ("1", "was written by upwell 0.1.0", "with upwell 0.2.0 first"),
    ],
)
def test_a_home_of_another_version_is_refused_in_one_line(
    upwell: Upwell, home: Path, version: str, what: str, hint: str
) -> None:
    upwell("remember", "The kettle boils")
    with closing(sqlite3.connect(home / "memory.db")) as db, db:
        db.execute(f"UPDATE schema_version SET version = {version}")
    before = (home / "memory.db").read_bytes()
    done = upwell("recall", "kettle")
    assert (done.code, done.out) == (1, "")
    assert len(done.err.splitlines()) == 1
    assert what in done.err
    assert hint in done.err
    assert (home / "memory.db").read_bytes() == before


RELEASED = "b68ec59d"
"""The commit of 0.2.0."""
QUESTION = json.dumps(
    {
        "session_id": "s",
        "hook_event_name": "UserPromptSubmit",
        "prompt": "how often do the tides turn the mill?",
    }
)


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """The command of 0.2.0, built from its commit."""
    git = ["git", "-C", str(ROOT)]
    if subprocess.run([*git, "cat-file", "-e", RELEASED], capture_output=True).returncode:
        pytest.skip("this clone does not reach back to 0.2.0")
    source, place = tmp_path / "source", tmp_path / "0.2.0"
    source.mkdir()
    archive = subprocess.run([*git, "archive", RELEASED], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
    uv = shutil.which("uv") or str(ROOT / ".tools/uv/bin/uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, place], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", place / "bin/python", source]
    subprocess.run(install, check=True, timeout=300)
    return place / "bin/upwell"


def test_a_home_goes_from_0_2_0_to_this_version_and_back(
    released: Path, upwell: Upwell, environment: Mapping[str, str], tmp_path: Path, home: Path
) -> None:
    """Each version reads what the other wrote, and the hook that 0.2.0 installed runs with both."""

    def older(*args: str) -> str:
        done = subprocess.run(
            [released, *args], env=environment, cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def hook() -> None:
        done = subprocess.run(
            [home / "upwell-hook", "claude", "UserPromptSubmit"],
            env=environment,
            input=QUESTION,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert isinstance(json.loads(done.stdout or "{}"), dict)

    Path(environment["HOME"], ".claude").mkdir()
    older("remember", "Tides turn the mill twice a day")
    older("remember", "--pin", "Answer in English")
    older("hook", "install", "claude", "--apply")
    hook()
    try:
        upwell("remember", "The heron nests in March")
        upwell("daemon", "stop")
        upwell("doctor")
        hook()
        assert upwell("export", "--to", "notes").code == 0
    finally:
        upwell("daemon", "stop")
    try:
        assert "The heron nests in March" in older("recall", "heron")
        older("remember", "The ferry leaves at nine")
        hook()
    finally:
        older("daemon", "stop")
    texts = {json.loads(line)["text"] for line in upwell("export").out.splitlines()}
    assert texts == {
        "Tides turn the mill twice a day",
        "Answer in English",
        "The heron nests in March",
        "The ferry leaves at nine",
    }
