"""A database with an intact structure and damaged values, which SQLite does not notice. Every
command answers, and a value that cannot be read costs at most its own row.
"""

import random
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from upwell.app import Settings, build
from upwell.cli.main import main
from upwell.ground.sqlite.database import open_database
from upwell.ground.sqlite.ttl_store import OWNER, SqliteTtlStore
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import Memory, Scope
from upwell.ground.types.surfacing import Skip
from upwell.memory.records import NO_PROJECT
from upwell.memory.sqlite.sources import OWNER as SOURCES
from upwell.memory.sqlite.store import OWNER as MEMORIES
from upwell.memory.sqlite.store import SqliteStore

Value = bytes | str | float | None
VALUES: Sequence[Value] = (
    *(b"\xff\xfe", b"", b'{"a":1}', "x", "\ufffd", "", "[]", "{}", "[[1]]", "null"),
    *(-1, 0, 1, 2**62, -(2**62), 1e300, -1e300, float("inf"), 1.5, None),
)
VERBS = (
    *(["recall", "kettle", "--json"], ["remember", "a new thing"], ["export"], ["explain"]),
    *(["context", "what of kettle 7?", "--session", "z"], ["context", "--door", "session"]),
    *(["explain", "--json"], ["stats", "--json"], ["tune"], ["inbox"], ["rules"], ["topics"]),
    *(["daemon", "status"], ["stm", "search", "kettle"], ["import"], ["cache", "clear"]),
)
ROUNDS = 300


@pytest.fixture(scope="module")
def sound_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("sound") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UPWELL_HOME", str(home))
        patch.chdir(home.parent)
        (home.parent / "a.md").write_text(
            "# Kettle\n\nThe kettle of src/f3.py.\n\n## Steam\n\nHot.\n"
        )
        assert main(["import", "a.md"]) == 0
        for number in range(20):
            main(["remember", f"fact {number} of the kettle", "--path", f"src/f{number}.py"])
        for number in range(4):
            main(["context", f"what of kettle {number}?", "--session", f"s{number}"])
        main(["stm", "add", "a note on the kettle"])
        main(["rules", "add", "Always descale the kettle."])
        main(["recall", "kettle"])
    return home


def damaged(home: Path, rng: random.Random) -> list[tuple[str, str, Value]]:
    """Put a wrong value into one to ten cells of one database."""
    path = home / rng.choice(["ledger.db", "memory.db", "index.db"])
    changes: list[tuple[str, str, Value]] = []
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        tables = [
            name
            for (name,) in db.execute(
                "SELECT name FROM sqlite_master "
                "WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
            )
            if not name.startswith(("sqlite_", "words_"))
        ]
        for _ in range(rng.choice((1, 1, 3, 10))):
            table = rng.choice(tables)
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            changed, chosen = rng.choice(columns), rng.choice(columns)
            rows = db.execute(f"SELECT {chosen}, {changed} FROM {table}").fetchall()
            if not rows:
                continue
            key, before = rng.choice(rows)
            value = _flipped(before, rng) if rng.random() < 0.3 else rng.choice(VALUES)
            try:
                db.execute(
                    f"UPDATE OR IGNORE {table} SET {changed} = ? WHERE {chosen} IS ?", (value, key)
                )
            except sqlite3.IntegrityError:
                continue
            changes.append((table, changed, value))
    return changes


def _flipped(value: Value, rng: random.Random) -> Value:
    if not value or not isinstance(value, str | bytes):
        return value
    content = bytearray(value.encode() if isinstance(value, str) else value)
    content[rng.randrange(len(content))] = rng.randrange(128)
    return content.decode(errors="replace") if isinstance(value, str) else bytes(content)


@pytest.mark.parametrize("seed", range(6))
def test_every_command_answers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sound_home: Path,
    seed: int,
) -> None:
    failures = faults(tmp_path, monkeypatch, capsys, sound_home, range(seed * 4, seed * 4 + 4))
    assert failures == []


@pytest.mark.slow
def test_every_command_answers_after_many_damages(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sound_home: Path,
) -> None:
    assert faults(tmp_path, monkeypatch, capsys, sound_home, range(1000, 1000 + ROUNDS)) == []


def faults(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sound_home: Path,
    seeds: range,
) -> list[str]:
    """Damage a home for each seed, and run commands. Returns those that failed, with the damage."""
    home = tmp_path / "home"
    monkeypatch.setenv("UPWELL_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    found = []
    for seed in seeds:
        rng = random.Random(seed)
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(sound_home, home)
        changes = damaged(home, rng)
        for verb in rng.sample(VERBS, 4):
            status = main(verb)
            errors = capsys.readouterr().err
            if status or "internal error" in errors:
                found.append(f"{seed}: {verb}: {errors[-300:]!r} after {changes}")
    return found


async def test_a_value_with_a_flipped_byte_is_absent(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    database = open_database(path, [OWNER], synchronous="NORMAL")
    store = SqliteTtlStore(database)
    await store.put("original", {"good": b"x" * 100, "bad": b"y" * 100}, ttl_seconds=60)
    await store.incr("original", {"counted": 2}, ttl_seconds=60)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE shelf SET value = ? WHERE key = 'bad'", (b"y" * 99 + b"z",))
        db.commit()
    assert {item.key for item in await store.scan("original")} == {"good", "counted"}
    assert await store.get("original", ["bad"]) == {}
    await store.put("original", {"bad": b"anew"}, ttl_seconds=60)
    assert (await store.get("original", ["bad"]))["bad"].value == b"anew"
    await database.aclose()


async def test_an_entry_of_the_former_version_has_no_checksum_and_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    database = open_database(path, [OWNER], synchronous="NORMAL")
    store = SqliteTtlStore(database)
    await store.put("count", {"old": b"x"}, ttl_seconds=60)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE shelf SET sum = NULL")
        db.commit()
    assert (await store.get("count", ["old"]))["old"].value == b"x"
    await database.aclose()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE schema_version SET owner = 'z' WHERE owner = 'memory'",
        "UPDATE schema_version SET owner = 'z' WHERE owner = 'sources'",
        "UPDATE schema_version SET version = 1e300 WHERE owner = 'memory'",
        "UPDATE schema_version SET version = -1 WHERE owner = 'memory'",
        "UPDATE schema_version SET version = 'x' WHERE owner = 'memory'",
        "UPDATE scope SET words = '[[1]]'",
        "UPDATE scope SET last = 'a'",
        "UPDATE scope SET last = 0",
        "UPDATE memory SET created_at = 'x', expires_at = 'y', tags = 7",
    ],
)
async def test_the_store_heals_and_takes_memories(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "memory.db"
    owners = [MEMORIES, SOURCES]
    database = open_database(path, owners, synchronous="FULL")
    await SqliteStore(database).add([Memory(text=f"fact {i}", id=f"m{i}") for i in range(20)])
    await database.aclose()
    with closing(sqlite3.connect(path)) as db:
        db.execute(damage)
        db.commit()
    database = open_database(path, owners, synchronous="FULL")
    store = SqliteStore(database)
    await store.add([Memory(text="after the damage", id="new")])
    assert {memory.id for memory in await store.list(Scope(), limit=100)} == {
        *(f"m{i}" for i in range(20)),
        "new",
    }
    await database.aclose()


async def test_a_memory_whose_project_cannot_be_read_belongs_to_none(tmp_path: Path) -> None:
    """It does not become a memory for every project, because another project must not see it."""
    settings = Settings(home=tmp_path / "home", environment={})
    app = await build(settings)
    await app.memory.add_many([{"id": "m", "text": "the kettle fact", "project": "/srv/secret"}])
    await app.aclose()
    with closing(sqlite3.connect(tmp_path / "home" / "memory.db")) as db:
        db.execute("UPDATE memory SET project = x'ff'")
        db.commit()
    app = await build(settings)
    memory = await app.memory.get("m")
    assert memory is None or memory.project == NO_PROJECT
    cue = Cue(door="ask", text="the kettle fact", cwd=str(tmp_path))
    assert isinstance(await app.surfacer.surface(cue), Skip)
    await app.aclose()
