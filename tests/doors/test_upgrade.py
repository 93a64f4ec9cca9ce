"""Homes of other versions."""

import sqlite3
import tomllib
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
