"""Import and export: idempotent, complete, with clear errors."""

import json
import os
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from upwell.ground.errors import UsageError
from upwell.ground.sqlite.database import open_database
from upwell.ground.types.memory import Memory, Provenance, Trust
from upwell.memory import transfer
from upwell.memory.library import Library
from upwell.memory.line import to_line
from upwell.memory.sqlite.store import OWNER, SqliteStore
from upwell.memory.transfer import copy_memories, exported, format_of, to_markdown

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
async def library(tmp_path: Path) -> AsyncIterator[Library]:
    database = open_database(tmp_path / "memory.db", [OWNER], synchronous="NORMAL")
    yield Library(SqliteStore(database))
    await database.aclose()


KEY = b"k" * 32


async def take(library: Library, path: Path) -> transfer.Copied:
    return await copy_memories(library, path, lambda done, total: None, key=KEY)


async def everything(library: Library) -> list[Memory]:
    return sorted([memory async for memory in exported(library)], key=lambda one: one.id)


def file(tmp_path: Path, *rows: object, name: str = "in.jsonl") -> Path:
    path = tmp_path / name
    reply = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(reply) + "\n")
    return path


async def test_an_export_is_imported_unchanged(library: Library, tmp_path: Path):
    await library.add_many(
        [
            Memory(
                text="lone \ud800, NUL \0, line\nsecond 🌊",
                id="1" * 40,
                namespace="decisions",
                tags=("a", "b"),
                paths=("src/a.py",),
                symbols=("App.run",),
                triggers=("error:1f0c",),
                occurrences=2,
                project="/home/x/repo",
                source="memory/a.md",
                lines=(3, 5),
                provenance=Provenance(door="tool", server="fs", tool="read", session="s"),
                trust=Trust.IMPORTED,
                pinned=True,
                supersedes="other",
                expires_at=4e9,
                created_at=1775736000.123457,
                updated_at=1775736001.5,
                viewed_at=1775736002.25,
            ),
            {"text": "plain"},
        ]
    )
    before = await everything(library)
    path = file(tmp_path, *(to_line(memory, KEY) for memory in before))
    fresh_database = open_database(tmp_path / "fresh.db", [OWNER], synchronous="NORMAL")
    fresh = Library(SqliteStore(fresh_database))
    assert (await take(fresh, path)).stored == 2
    assert await everything(fresh) == before
    await take(fresh, path)
    assert await everything(fresh) == before
    await fresh_database.aclose()


async def test_importing_twice_changes_nothing(library: Library, tmp_path: Path):
    path = file(tmp_path, {"text": "no id and no time"}, "", {"text": "other", "tags": ["x"]})
    assert (await take(library, path)).stored == 2
    before = await everything(library)
    await take(library, path)
    assert await everything(library) == before
    assert {entry.trust for entry in before} == {Trust.IMPORTED}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "object with a text"),
        ('{"text": 5}', "needs text"),
        ('{"text": " "}', "needs text"),
        ('{"text": "x", "created_at": NaN}', "NaN"),
        ('{"text": "x", "created_at": 1e400}', "not a time"),
        ('{"text": "x", "created_at": 1' + "0" * 400 + "}", "not a time"),
        ('{"text": "x", "created_at": "soon"}', "not a time"),
        ('{"text": "x", "id": "\\ud800"}', "valid Unicode"),
        ('{"text": "x", "id": "' + "y" * 300 + '"}', "at most"),
        ('{"text": "x", "upwell": 1}', "must be an object"),
        ('{"text": "x", "upwell": {"trust": "god"}}', "god"),
        ('{"text": "x", "upwell": {"provenance": {"shoe": 1}}}', "shoe"),
        ('{"text": "x", "upwell": {"lines": [1]}}', "lines"),
        ('{"text": "x", "upwell": {"trust": "agent", "pinned": true}}', "only a person can pin"),
        ('{"text": "x", "upwell": {"lines": [-5, -9]}}', "lines"),
        ('{"text": "x", "upwell": {"lines": [1, 1' + "0" * 40 + "]}}", "lines"),
        ('{"text": "x", "upwell": {"provenance": {"door": ["x"]}}}', "provenance"),
        ('{"text": "x", "upwell": {"provenance": {"session": "\\ud800"}}}', "provenance"),
        ('{"text": "x", "upwell": {"expires_at": 1e300}}', "expires_at is not a time"),
        ('{"text": "x", "upwell": {"expires_at": true}}', "expires_at is not a time"),
        ('{"text": "x", "upwell": {"supersedes": "' + "s" * 10**4 + '"}}', "not an id"),
        ('{"text": "x", "id": "a\\u001b[31m"}', "not an id"),
        ("[" * 100_000, "nested"),
    ],
)
async def test_a_bad_line_is_reported_and_its_batch_is_not_stored(
    library: Library, tmp_path: Path, row: str, message: str
):
    path = file(tmp_path, {"text": "good"}, row, {"text": "later"})
    with pytest.raises(UsageError) as caught:
        await take(library, path)
    assert f"{path}:2" in caught.value.message
    assert message in caught.value.message
    assert "nothing was stored" in caught.value.hint
    assert await everything(library) == []


async def test_batches_before_a_bad_line_are_stored_and_counted(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transfer, "BATCH", 2)
    path = file(tmp_path, *({"text": f"n{n}"} for n in range(5)), "{")
    with pytest.raises(UsageError) as caught:
        await take(library, path)
    assert f"{path}:6" in caught.value.message
    assert "4 earlier memories stored" in caught.value.hint
    assert len(await everything(library)) == 4


async def test_invalid_utf8_is_reported_with_its_line(library: Library, tmp_path: Path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"text": "good"}\n{"text": "\xe9"}\n')
    with pytest.raises(UsageError, match="UTF-8"):
        await take(library, path)


async def test_secrets_are_masked_and_counted(library: Library, tmp_path: Path):
    done = await take(library, file(tmp_path, {"text": f"the token is {TOKEN}"}))
    assert list(done.redacted.values()) == [1]
    assert TOKEN not in (await everything(library))[0].text


def test_the_file_name_decides_the_format(tmp_path: Path):
    names = {"a.md": "markdown", "b.jsonl": "jsonl", "stm.json": "stm", "c.NDJSON": "jsonl"}
    assert {name: format_of(tmp_path / name) for name in names} == names
    assert format_of(tmp_path) == "markdown"
    assert format_of(tmp_path / "x.txt", "markdown") == "markdown"
    for path, named in ((tmp_path / "x.txt", "auto"), (tmp_path / "a.md", "xml")):
        with pytest.raises(UsageError):
            format_of(path, named)


def test_markdown_shows_the_fields_of_a_memory():
    memory = Memory(text="we chose polars", id="m", namespace="decisions", paths=("a.py",))
    assert to_markdown(memory).startswith("## m\n\nwe chose polars\n\n- namespace: decisions\n")
    assert "a.py" in to_markdown(replace(memory, tags=("x",)))
    rule = to_markdown(replace(memory, pinned=True, supersedes="old", expires_at=1_753_012_800.0))
    assert "- pinned: yes\n- supersedes: old\n- until: 2025-07-20 12:00 UTC" in rule


async def test_a_line_without_an_end_is_refused_before_it_is_held_in_memory(
    library: Library, tmp_path: Path
):
    path = tmp_path / "m.jsonl"
    path.write_text('{"text": "one"}\n')
    os.truncate(path, 300_000_000)
    tracemalloc.start()
    with pytest.raises(UsageError, match=r"m.jsonl:2: the line has over 16 MB"):
        await take(library, path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000


async def test_a_memory_of_the_greatest_size_fits_in_a_line(library: Library, tmp_path: Path):
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps({"text": "\U0001f600" * 999_999}))
    assert (await take(library, path)).stored == 1


@pytest.mark.parametrize("change", ["text", "id", "project", "trust", "signature", "key"])
async def test_a_line_that_was_changed_is_not_the_users_own(
    library: Library, tmp_path: Path, change: str
):
    rule = Memory(text="never push", id="r", pinned=True, created_at=1.0, updated_at=1.0)
    line = json.loads(to_line(rule, b"x" * 32 if change == "key" else KEY))
    table = line["upwell"] if change in ("trust", "signature") else line
    if change != "key":
        table[change] = {"trust": "imported", "project": "/repo"}.get(change, "other")
    done = await take(library, file(tmp_path, line))
    assert (done.stored, done.own, done.rules) == (0, 0, 1)
    assert await everything(library) == []
    assert (await take(library, file(tmp_path, to_line(rule, KEY)))).own == 1
    assert [(entry.pinned, entry.trust) for entry in await everything(library)] == [
        (True, Trust.USER)
    ]


async def test_an_older_export_does_not_undo_a_later_change(library: Library, tmp_path: Path):
    then = Memory(text="the port is 80", id="m", created_at=1.0, updated_at=5.0)
    await library.add(replace(then, text="the port is 81", updated_at=9.0))
    done = await take(library, file(tmp_path, to_line(then, KEY)))
    assert done.conflicts == ("m",)
    later = replace(then, text="the port is 82", updated_at=10.0)
    await take(library, file(tmp_path, to_line(later, KEY)))
    assert [entry.text for entry in await everything(library)] == ["the port is 82"]


async def test_a_claim_can_only_lower_the_trust(library: Library, tmp_path: Path):
    claims = {"user": "imported", "agent": "agent", "tool": "tool", "imported": "imported"}
    rows = [{"text": name, "id": name, "upwell": {"trust": name}} for name in claims]
    await take(library, file(tmp_path, *rows))
    assert {entry.id: str(entry.trust) for entry in await everything(library)} == claims
