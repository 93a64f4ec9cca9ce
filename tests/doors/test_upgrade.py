"""A home of 0.1.0, as that version left it, in use by this one.

`recorded/home-0.1.0.tar.gz` is the home, the Claude Code settings and the project of a user, made
by the commands of 0.1.0: a memory, a rule, a memory in the trash, a note, an imported folder, two
servers, a rating, a token for another person, installed hooks, and settings.
"""

import json
import sqlite3
import tarfile
import time
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.conftest import Upwell

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).parent / "recorded" / "home-0.1.0.tar.gz"
MADE_AT = 1_795_375_668.0
"""When the recording was made. Its times are moved, so that nothing in it is ever out of date."""
USER = "/home/ada"
"""The user's folder in the recording. Its paths are replaced by those of the test's folder."""
RETRIES = "Retries of one charge reuse its idempotency key; order 1187 was charged twice"
RULE = "Answer errors with a problem document"


def test_uv_sees_a_new_commit_as_another_build() -> None:
    """Without the commit among the keys, `uv tool upgrade` finds nothing to upgrade after
    `git pull`, because the version stays the same between releases."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {"git": {"commit": True}} in pyproject["tool"]["uv"]["cache-keys"]


@pytest.fixture
def user(environment: Mapping[str, str], home: Path) -> Path:
    folder = Path(environment["HOME"])
    with tarfile.open(RECORDED) as recording:
        recording.extractall(folder, filter="data")
    (folder / ".local" / "share" / "upwell").rename(home)
    for file in (home / "hooks.json", home / "stm.origins.json", folder / ".claude/settings.json"):
        file.write_text(file.read_text().replace(USER, str(folder)))
    for database, table, columns in (
        ("memory.db", "memory", ("project",)),
        ("memory.db", "scope", ("project",)),
        ("memory.db", "source", ("path", "root", "project")),
    ):
        with sqlite3.connect(home / database) as db:
            known = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
            for column in known.intersection(columns):
                db.execute(
                    f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (USER, str(folder))
                )
        db.close()
    _move_times(home, time.time() - MADE_AT)
    return folder


def _move_times(home: Path, seconds: float) -> None:
    for database in ("memory.db", "ledger.db"):
        with sqlite3.connect(home / database) as db:
            tables = "SELECT name FROM sqlite_master WHERE type = 'table'"
            for (table,) in db.execute(tables).fetchall():
                for column in [row[1] for row in db.execute(f"PRAGMA table_info({table})")]:
                    if column == "at" or column.endswith("_at"):
                        moved = f"{column} = {column} + ? WHERE typeof({column}) = 'real'"
                        db.execute(f"UPDATE {table} SET {moved}", (seconds,))
            if database == "ledger.db":
                today = datetime.now(UTC).date().isoformat()
                db.execute(
                    "UPDATE shelf SET key = ? || substr(key, 11) WHERE kind = 'count'", (today,)
                )
        db.close()
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    notes = json.loads((home / "stm.json").read_text())
    moved_notes = [{**note, "created_at": now, "viewed_at": now} for note in notes]
    (home / "stm.json").write_text(json.dumps(moved_notes))


def test_everything_that_0_1_0_stored_is_found(upwell: Upwell, user: Path, home: Path) -> None:
    shop = user / "code" / "shop"
    (hit,) = upwell("recall", "idempotency", "--json", cwd=shop).json["hits"]
    assert (hit["text"], hit["paths"], hit["namespace"]) == (
        RETRIES,
        ["src/payments.py"],
        "decisions",
    )
    assert [rule["text"] for rule in upwell("rules", "--json", cwd=shop).json["rules"]] == [RULE]
    trash = upwell("recall", "--trash", "--json", cwd=shop).json["hits"]
    assert [hit["text"] for hit in trash] == ["The nightly report locks the orders table"]
    assert "reset on Mondays" in upwell("stm", "search", "staging", cwd=shop).out
    assert [row["name"] for row in upwell("list", "--json").json["servers"]] == ["files", "docs"]
    assert [row["name"] for row in upwell("token", "list", "--json").json["tokens"]] == ["grace"]
    settings = upwell("config", "show", "--json").json
    assert settings["surface.min_score"]["value"] == 0.45
    assert upwell("config", "check").code == 0
    assert upwell("stats", "--json").json["feedback"]["helpful"] == 1
    assert (home / "backups" / "memory-before-memory-v2.db").exists()


def test_the_imported_folder_is_still_read(upwell: Upwell, user: Path) -> None:
    shop = user / "code" / "shop"
    (shop / "notes" / "db.md").write_text("# Tenants\n\nEvery table has row level security.\n")
    (hit,) = upwell("recall", "row level security", "--json", cwd=shop).json["hits"]
    assert (hit["citation"], "Every table" in hit["text"]) == ("notes/db.md#L3-L3", True)


def test_installed_hooks_answer_and_can_be_removed(upwell: Upwell, user: Path) -> None:
    shop = user / "code" / "shop"
    event = {
        "session_id": "one",
        "cwd": str(shop),
        "hook_event_name": "SessionStart",
        "source": "startup",
    }
    try:
        answer = upwell("hook", "claude", input=json.dumps(event), cwd=shop)
        assert RULE in answer.json["hookSpecificOutput"]["additionalContext"]
    finally:
        upwell("daemon", "stop")
    assert upwell("hook", "uninstall", "claude", "--apply").code == 0
    assert (user / ".claude" / "settings.json").read_text() == '{"theme": "dark"}\n'


def test_a_home_of_a_later_version_is_refused_in_one_line(
    upwell: Upwell, user: Path, home: Path
) -> None:
    with sqlite3.connect(home / "memory.db") as db:
        db.execute("UPDATE schema_version SET version = version + 90")
    db.close()
    before = (home / "memory.db").read_bytes()
    done = upwell("recall", "idempotency")
    assert (done.code, done.out) == (1, "")
    assert len(done.err.splitlines()) == 1
    assert "was written by a later upwell" in done.err
    assert "upgrade upwell" in done.err
    assert (home / "memory.db").read_bytes() == before
