"""Documents: found in place, followed when they change, skipped if they cannot be read."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from upwell.ground.clock import Deadline
from upwell.ground.errors import UsageError
from upwell.ground.sqlite.database import open_database
from upwell.ground.types.memory import Hit, Query, Scope, Trust
from upwell.memory.base import Store
from upwell.memory.documents.catalog import DocumentCatalog
from upwell.memory.documents.reading import FileReader, FoundFile, KnownFile
from upwell.memory.documents.recall import Documents
from upwell.memory.sources import OWNER, Source, SqliteSources, source_at
from upwell.memory.stm import ShortTerm
from upwell.testing import ManualClock

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


class House:
    """A home, a working folder, and its imports."""

    def __init__(self, folder: Path) -> None:
        self.home, self.work = folder / "home", folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        self.database = open_database(self.home / "memory.db", [OWNER], synchronous="NORMAL")
        self.sources = SqliteSources(self.database)
        self.notes = ShortTerm(self.home / "stm.json")
        self.documents = self.opened()

    def opened(self) -> Documents:
        return Documents(DocumentCatalog(self.home / "index.db"), self.sources, notes=self.notes)

    def write(self, name: str, text: str) -> Path:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    async def take(self, name: str) -> None:
        await self.sources.add(source_at(self.work / name, self.work))

    async def find(self, text: str, project: str | None = None, awaited: bool = True) -> list[Hit]:
        query = Query(texts=(text,), scope=Scope(project=project), awaited=awaited)
        return list((await self.documents.search(query, Deadline.after(30))).hits)

    async def cited(self, text: str) -> list[str]:
        hits = await self.find(text)
        return [f"{hit.memory.source}:{hit.memory.lines}" for hit in hits]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    yield made
    await made.documents.aclose()
    await made.database.aclose()


async def test_a_chunk_cites_its_lines_and_its_file(house: House):
    house.write(
        "memory/decisions/pets.md", "---\ntags: [pets]\n---\n# Pets\n\n- a cat\n- a kettle\n"
    )
    await house.take("memory")
    (hit,) = await house.find("kettle")
    memory = hit.memory
    assert (memory.source, memory.lines) == ("memory/decisions/pets.md", (7, 7))
    assert (memory.namespace, memory.tags) == ("decisions", ("pets",))
    assert (memory.trust, memory.project) == (Trust.IMPORTED, None)
    assert await house.documents.get(memory.id) is not None
    assert 0 <= hit.score <= 1


async def test_words_of_a_heading_find_the_text_below(house: House):
    house.write("a.md", "# Kubernetes\n\n" + "## Upgrade\n\nDrain first.\n\n## Other\n\nNothing.\n")
    await house.take("a.md")
    assert "a.md:(9, 9)" in await house.cited("kubernetes")


async def test_an_edit_an_addition_and_a_deletion_count_at_the_next_search(house: House):
    path = house.write("memory/a.md", "the kettle is red\n")
    await house.take("memory")
    assert await house.cited("kettle") == ["memory/a.md:(1, 1)"]
    path.write_text("\n\nthe kettle is red\n")
    assert await house.cited("kettle") == ["memory/a.md:(3, 3)"]
    path.write_text("\n\nthe teapot's red\n")
    assert await house.cited("kettle") == []
    house.write("memory/b.md", "a kettle again\n")
    assert await house.cited("kettle") == ["memory/b.md:(1, 1)"]
    (house.work / "memory" / "b.md").unlink()
    assert await house.cited("kettle") == []


async def test_an_edit_of_the_same_size_within_the_same_tick_is_seen(house: House):
    path = house.write("a.md", "red kettle\n")
    tick = time.time_ns() + 60 * 10**9
    os.utime(path, ns=(tick, tick))
    await house.take("a.md")
    assert await house.cited("red") == ["a.md:(1, 1)"]
    path.write_text("tan kettle\n")
    os.utime(path, ns=(tick, tick))
    assert await house.cited("tan") == ["a.md:(1, 1)"]


async def test_ids_stay_while_other_parts_of_the_file_change(house: House):
    path = house.write("a.md", "# A\n\nthe kettle\n\n# B\n\nthe teapot\n")
    await house.take("a.md")
    (before,) = await house.find("teapot")
    path.write_text("# A\n\nmany more words about the kettle\n\nand more\n\n# B\n\nthe teapot\n")
    (after,) = await house.find("teapot")
    assert after.memory.id == before.memory.id
    assert after.memory.lines == (9, 9)


async def test_another_process_and_a_deleted_index_change_nothing(house: House):
    house.write("a.md", "the kettle\n")
    await house.take("a.md")
    assert await house.cited("kettle") == ["a.md:(1, 1)"]
    other = house.opened()
    query = Query(texts=("kettle",))
    assert len((await other.search(query, Deadline.after(30))).hits) == 1
    await other.aclose()
    (house.home / "index.db").unlink()
    assert await house.cited("kettle") == ["a.md:(1, 1)"]


async def test_a_source_inside_another_owns_its_files(house: House):
    (house.work / "repo" / ".git").mkdir(parents=True)
    house.write("repo/notes/a.md", "the kettle\n")
    await house.take(".")
    assert [hit.memory.project for hit in await house.find("kettle")] == [None]
    await house.take("repo")
    project = str(house.work / "repo")
    assert [hit.memory.project for hit in await house.find("kettle")] == [project]
    assert await house.find("kettle", "/elsewhere") == []
    assert len(await house.find("kettle", project)) == 1


async def test_a_removed_import_is_forgotten(house: House):
    house.write("a.md", "the kettle\n")
    await house.take("a.md")
    (hit,) = await house.find("kettle")
    assert await house.sources.remove(str(house.work / "a.md"))
    assert await house.find("kettle") == []
    assert await house.documents.get(hit.memory.id) is None


async def test_a_file_can_be_read_by_a_principal_that_sees_all_of_it(house: House):
    house.write("decisions/a.md", "the kettle is red\n")
    house.write("b.md", "")
    await house.take("decisions")
    await house.take("b.md")
    [hit] = await house.find("kettle")
    cited = hit.memory.source
    assert await house.documents.lines(cited, None, ["patterns", "decisions"])
    for path, namespaces in ((cited, ["patterns"]), ("b.md", ["context"])):
        with pytest.raises(UsageError):
            await house.documents.lines(path, None, namespaces)


async def test_secrets_are_masked_in_the_index_and_lines_stay(house: House):
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA\n" * 20
    house.write("a.md", f"token {TOKEN}\n\n{key}-----END RSA PRIVATE KEY-----\n\nthe kettle\n")
    await house.take("a.md")
    assert await house.cited("kettle") == ["a.md:(1, 26)"]
    (hit,) = await house.find("kettle")
    assert TOKEN not in hit.memory.text
    assert hit.memory.text.endswith("the kettle")
    assert TOKEN not in "".join(await house.documents.lines("a.md", None))
    await house.documents.aclose()
    house.documents = house.opened()
    stored = b"".join(path.read_bytes() for path in house.home.glob("index.db*"))
    assert TOKEN.encode() not in stored
    assert b"MIIEpAIBAAKCAQEA" not in stored


async def test_an_unreadable_file_is_reported_and_the_rest_is_found(house: House):
    house.write("n/good.md", "the kettle\n")
    (house.work / "n" / "latin.md").write_bytes("caf\xe9 kettle".encode("latin-1"))
    (house.work / "n" / "big.md").write_bytes(b"kettle " * 1_600_000)
    os.mkfifo(house.work / "n" / "pipe.md")
    (house.work / "n" / "loop").symlink_to(house.work / "n", target_is_directory=True)
    secret = house.write("outside.md", "kettle outside\n")
    (house.work / "n" / "link.md").symlink_to(secret)
    house.write("n/.hidden.md", "kettle hidden\n")
    for name in ("good", "latin", "big"):
        os.utime(house.work / "n" / f"{name}.md", (1e9, 1e9))
    await house.take("n")
    assert await house.cited("kettle") == ["n/good.md:(1, 1)"]
    state = await house.documents.refresh()
    assert {Path(problem.path).name: problem.why for problem in state.problems} == {
        "latin.md": "not UTF-8 (byte 3)",
        "big.md": "over 10 MB",
        "link.md": "symbolic links are not followed",
    }
    assert (state.files, state.chunks) == (1, 1)
    index = (house.home / "index.db-wal").stat()
    await house.find("kettle")
    assert (house.home / "index.db-wal").stat().st_mtime_ns == index.st_mtime_ns


async def test_documents_in_hidden_folders_are_found_but_not_those_of_programs(house: House):
    programs = (".git", ".ruff_cache", "node_modules/x", ".venv/lib", ".Trash-1000", ".tox/py")
    marked = {
        "env/lib": "env/pyvenv.cfg",
        ".store": ".store/CACHEDIR.TAG",
        ".agents/worktrees/w/docs": ".agents/worktrees/w/.git",
    }
    for folder in (".agents/rules", ".github", ".cursor/docs", *programs, *marked):
        house.write(f"n/{folder}/a.md", f"the kettle of {folder}\n")
    for mark in marked.values():
        house.write(f"n/{mark}", "x\n")
    await house.take("n")
    assert sorted(await house.cited("kettle")) == [
        "n/.agents/rules/a.md:(1, 1)",
        "n/.cursor/docs/a.md:(1, 1)",
        "n/.github/a.md:(1, 1)",
    ]


async def test_a_source_that_vanished_is_reported_and_found_again(house: House):
    house.write("n/a.md", "the kettle\n")
    await house.take("n")
    assert len(await house.find("kettle")) == 1
    (house.work / "n").rename(house.work / "away")
    assert await house.find("kettle") == []
    (problem,) = (await house.documents.refresh()).problems
    assert problem.path == str(house.work / "n")
    (house.work / "away").rename(house.work / "n")
    assert len(await house.find("kettle")) == 1


async def test_a_folder_replaced_by_a_link_leads_nowhere(house: House):
    house.write("n/sub/a.md", "the kettle\n")
    house.write("private/a.md", "the kettle of others\n")
    await house.take("n")
    assert len(await house.find("kettle")) == 1
    (house.work / "n" / "sub" / "a.md").unlink()
    (house.work / "n" / "sub").rmdir()
    (house.work / "n" / "sub").symlink_to(house.work / "private", target_is_directory=True)
    assert await house.find("kettle") == []
    with pytest.raises(UsageError):
        await house.documents.lines("n/sub/a.md", None)


@pytest.mark.parametrize(
    "path",
    [
        "../work/a.md",
        "../../etc/passwd",
        "/etc/passwd",
        "memory/../../x",
        "",
        "a.md/../a.md",
        "b.md",
    ],
)
async def test_only_imported_files_can_be_read(house: House, path: str):
    house.write("a.md", "one\ntwo\n")
    house.write("b.md", "not imported\n")
    await house.take("a.md")
    assert await house.documents.lines("a.md", None) == ["one", "two"]
    assert await house.documents.lines("./a.md", None) == ["one", "two"]
    with pytest.raises(UsageError):
        await house.documents.lines(path, None)


async def test_notes_are_found_cited_by_id_and_not_viewed(house: House):
    entry, _ = house.notes.add("the kettle stands in the kitchen")
    before = (house.home / "stm.json").read_bytes()
    (hit,) = await house.find("kettle")
    assert (hit.memory.id, hit.memory.source) == (entry.id, f"stm:{entry.id}")
    assert hit.memory.lines is None
    assert (house.home / "stm.json").read_bytes() == before
    assert house.notes.delete(entry.id)
    assert await house.find("kettle") == []


async def test_an_automatic_door_does_not_wait_for_a_large_import(house: House):
    for number in range(400):
        house.write(f"n/{number}.md", "\n\n".join(f"# Part {n}\n\nkettle {n}" for n in range(12)))
    await house.take("n")
    loop = asyncio.get_running_loop()
    began = loop.time()
    early = await house.find("kettle", awaited=False)
    assert loop.time() - began < 1.0
    assert len(early) <= len(await house.find("kettle"))
    assert len(await house.find("part")) == 10


async def test_an_automatic_door_sees_a_small_change_at_once(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("upwell.memory.documents.recall.RACE_SECONDS", 20.0)
    house.write("a.md", "the kettle\n")
    await house.take("a.md")
    await house.find("kettle")
    await asyncio.sleep(0.1)
    house.write("a.md", "the teapot\n")
    assert len(await house.find("teapot", awaited=False)) == 1


async def test_a_file_that_was_only_touched_is_not_read_into_the_index_again(house: House):
    good = house.write("n/a.md", "the kettle\n")
    bad = house.work / "n" / "latin.md"
    bad.write_bytes(b"caf\xe9")
    await house.take("n")
    (before,) = await house.find("kettle")
    for path in (good, bad):
        os.utime(path, (1_000_000, 1_000_000))
    (after,) = await house.find("kettle")
    assert after.memory == before.memory
    assert [problem.why for problem in (await house.documents.refresh()).problems] == [
        "not UTF-8 (byte 3)"
    ]


def test_a_file_that_cannot_be_opened_is_reported_once_and_tried_again(tmp_path: Path):
    source = Source(str(tmp_path), "n")
    result = FoundFile(str(tmp_path / "a.md"), 11, 1, source)
    (first,) = FileReader("default").read_all([result], {}, 10**18)
    assert (first.problem, first.found.mtime_ns) == ("no such file or directory", 0)
    known = {result.path: KnownFile(11, 0, first.hash, source.key)}
    assert FileReader("default").read_all([result], known, 10**18) == []
    (tmp_path / "a.md").write_text("the kettle\n")
    (again,) = FileReader("default").read_all([result], known, 10**18)
    assert [row.text for row in again.sections] == ["the kettle"]


class CountedSources(SqliteSources):
    """Counts the requests for the list."""

    asked = 0

    async def all(self) -> list[Source]:
        self.asked += 1
        return await super().all()


async def test_without_imports_events_only_check_modification_times(house: House):
    clock = ManualClock(1_000.0)
    sources = CountedSources(house.database)
    catalog = DocumentCatalog(house.home / "index.db", clock=clock)
    documents = Documents(catalog, sources, notes=house.notes, clock=clock)
    query = Query(texts=("kettle",), scope=Scope(), awaited=False)
    for _ in range(20):
        clock.advance(2)
        assert (await documents.search(query, Deadline.after(30))).hits == ()
    assert sources.asked <= 2
    house.write("memory/a.md", "the kettle is red")
    other = open_database(house.home / "memory.db", [OWNER], synchronous="NORMAL")
    await SqliteSources(other).add(source_at(house.work / "memory", house.work))
    clock.advance(2)
    for _ in range(100):
        if (await documents.search(query, Deadline.after(30))).hits:
            break
        clock.advance(2)
        await asyncio.sleep(0.02)
    else:
        raise AssertionError("what another process imported was not found")
    await other.aclose()
    await documents.aclose()


async def test_searches_at_once_open_one_index(tmp_path: Path) -> None:
    opened: list[Store] = []
    path = tmp_path / "index.db"
    path.touch()
    catalog = DocumentCatalog(path, opened=opened.append, clock=ManualClock())
    stores = await asyncio.gather(*(catalog.store() for _ in range(5)))
    assert len(opened) == 1
    assert set(stores) == set(opened)
    await catalog.aclose()
