"""The library: the fields of an import, secrets, files and symbols, namespaces, search by text."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from upwell.ground.clock import Deadline
from upwell.ground.errors import UsageError
from upwell.ground.sqlite.database import open_database
from upwell.ground.types.memory import Memory, Query, Scope, Trust
from upwell.memory.library import Library
from upwell.memory.records import memory_of
from upwell.memory.sqlite.store import OWNER, SqliteStore

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
async def library(tmp_path: Path) -> AsyncIterator[Library]:
    database = open_database(tmp_path / "memory.db", [OWNER], synchronous="FULL")
    yield Library(SqliteStore(database))
    await database.aclose()


async def test_the_import_shape(library: Library) -> None:
    added = await library.add_many(
        [
            {
                "id": "a",
                "text": "we chose polars",
                "namespace": "Decision",
                "tags": ["data"],
                "paths": ["src/etl.py"],
                "symbols": ["load_frame"],
                "project": "/home/x/repo/",
                "source": "git:abc",
                "created_at": "2026-04-09T12:00:00Z",
            },
            {"text": "bare"},
            Memory(text="an object", id="o", trust=Trust.AGENT),
        ]
    )
    assert [entry.id for entry in added][::2] == ["a", "o"]
    stored = await library.get("a")
    assert stored is not None
    assert stored.namespace == "decisions"
    assert stored.tags == ("data",)
    assert stored.paths == ("src/etl.py",)
    assert stored.symbols == ("load_frame",)
    assert stored.project == "/home/x/repo"
    assert stored.source == "git:abc"
    assert stored.created_at == 1775736000.0
    bare = await library.get(added[1].id)
    assert bare is not None
    assert (bare.namespace, bare.project, bare.trust) == ("context", None, Trust.USER)
    by_agent = await library.get("o")
    assert by_agent is not None
    assert by_agent.trust is Trust.AGENT
    assert await library.get("unknown") is None


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"text": ""},
        {"text": "  "},
        {"text": 5},
        {"text": "x", "tags": 5},
        {"text": "x", "tags": [1]},
        {"text": "x", "paths": {"a": 1}},
        {"text": "x", "created_at": "yesterday"},
        {"text": "x", "created_at": True},
        {"text": "x", "id": ["a"]},
        {"text": "x", "namespace": "two words"},
        {"text": "x", "project": 3},
        {"text": "x", "id": "\ud800"},
        {"text": "x" * 1_000_001},
        "just text",
        None,
        5,
    ],
)
async def test_a_malformed_item_is_one_clear_error_and_nothing_is_stored(
    library: Library, item: object
) -> None:
    with pytest.raises(UsageError) as refused:
        await library.add_many([{"text": "good"}, item])
    assert "\n" not in str(refused.value)
    assert await library.list() == []


async def test_secrets_are_masked_before_anything_is_stored(
    library: Library, tmp_path: Path
) -> None:
    (added,) = await library.add_many(
        [{"text": f"deploy with {TOKEN}", "tags": [TOKEN], "source": f"note {TOKEN}"}]
    )
    assert added.redacted == ("github-pat",)
    stored = await library.get(added.id)
    assert stored is not None
    assert stored.text == "deploy with [REDACTED:github-pat]"
    for file in tmp_path.iterdir():
        assert TOKEN.encode() not in file.read_bytes()
        assert TOKEN.lower().encode() not in file.read_bytes()


async def test_a_line_of_a_private_key_is_not_indexed_as_a_name(library: Library) -> None:
    line, edge = "MIIEowIBAAKCAQEA0Zq7", f"RSA {'PRIVATE'} KEY-----"
    text = f"load_key reads\n-----BEGIN {edge}\n{line}\n-----END {edge}"
    (added,) = await library.add_many([{"text": text}])
    stored = await library.get(added.id)
    assert stored is not None
    assert stored.symbols == ("load_key",)


async def test_a_secret_that_reads_like_a_path_is_not_indexed_as_one(library: Library) -> None:
    token = "1//0" + "waLyVPyvMICiFow3KvpDcmQ2mRAQV1Bp02W5wHIiXRc3YDC4eBzp7m4MyEPu"
    (added,) = await library.add_many([{"text": f"see src/net.py: a\\n{token}\\nb"}])
    stored = await library.get(added.id)
    assert stored is not None
    assert added.redacted
    assert stored.paths == ("src/net.py",)


async def test_files_and_symbols_come_from_the_text_where_none_are_given(library: Library) -> None:
    (added,) = await library.add_many(
        [{"text": "retry_policy in src/net/client.py must call `Backoff.reset` first"}]
    )
    stored = await library.get(added.id)
    assert stored is not None
    assert stored.paths == ("src/net/client.py",)
    assert stored.symbols == ("retry_policy", "Backoff.reset")
    hits = await library.search("open /home/x/repo/src/net/client.py")
    assert hits[0].memory.id == added.id
    assert hits[0].signals["path_join"] == 1.0


async def test_search_respects_limit_project_and_namespace(library: Library) -> None:
    await library.add_many(
        [
            {"text": "kettle one", "id": "1", "project": "/a"},
            {"text": "kettle two", "id": "2", "project": "/b", "namespace": "decisions"},
            {"text": "kettle three", "id": "3"},
        ]
    )

    async def found(**given) -> set[str]:
        return {hit.memory.id for hit in await library.search("kettle", **given)}

    assert await found(project="/a") == {"1", "3"}
    assert await found(namespaces=["decision"]) == {"2"}
    assert await found(limit=0) == set()
    assert await library.search("  ") == []


async def test_update_delete_restore(library: Library) -> None:
    await library.add({"text": "port 8080", "id": "p"})
    await library.update(Memory(text=f"port 9090 {TOKEN}", id="p"))
    stored = await library.get("p")
    assert stored is not None
    assert stored.text == "port 9090 [REDACTED:github-pat]"
    assert await library.delete("p")
    assert await library.get("p") is None
    assert await library.restore("p")
    assert await library.get("p") == stored
    assert (await library.ping()).ok


async def test_only_a_person_can_pin(library: Library) -> None:
    for trust in (Trust.AGENT, Trust.TOOL):
        with pytest.raises(UsageError):
            await library.add(Memory(text="obey", pinned=True, trust=trust))
    await library.add(Memory(text="never force-push", pinned=True))
    assert [memory.text for memory in await library.list()] == ["never force-push"]


async def test_a_superseded_memory_must_exist(library: Library) -> None:
    for memory in (Memory(text="x", supersedes="a"), Memory(text="x", id="a", supersedes="a")):
        with pytest.raises(UsageError):
            await library.add(memory)
    await library.add({"text": "port 8080", "id": "a"})
    await library.add(Memory(text="port 9090", id="b", supersedes="a"))
    assert [hit.memory.id for hit in await library.search("port 8080")] == ["b", "a"]


async def test_a_reader_reads_its_library(library: Library) -> None:
    await library.add({"id": "kettle", "text": "The kettle boils in four minutes"})
    await library.store.add([Memory(id="rule", text="Never push to main", pinned=True)])
    reader = library.reader
    result = await reader.search(Query(texts=("kettle boils",)), Deadline.after(5))
    assert [hit.memory.id for hit in result.hits] == ["kettle"]
    assert result.missing == ()
    assert [memory.id for memory in await reader.pinned(Scope())] == ["rule"]
    assert {memory.id for memory in await reader.latest(Scope())} == {"rule", "kettle"}
    kettle = await reader.known("kettle")
    assert kettle
    assert kettle.text.startswith("The kettle")
    assert await reader.known("unknown") is None


async def test_the_token_of_a_reader_differs_after_a_deletion(library: Library) -> None:
    await library.add({"id": "kettle", "text": "The kettle boils in four minutes"})
    before = await library.reader.changes()
    assert await library.reader.changes() == before
    await library.delete("kettle")
    assert await library.reader.changes() != before


def test_a_project_and_files_given_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    project, text = str(tmp_path / "link"), f"{tmp_path}/link/a.py is generated"
    named = Memory(text="generated", project=project, paths=(f"{project}/b.py", "c.py", "src/*.py"))
    for memory, paths in (
        (named, (f"{tmp_path}/real/b.py", "c.py", "src/*.py")),
        (Memory(text=text, project=project), (f"{tmp_path}/real/a.py",)),
    ):
        stored = memory_of(memory)
        assert stored.project == str(tmp_path / "real")
        assert stored.paths == paths
