"""The plan of moving in, and its effect on a real store."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.unit.migration.reading import place_at

from upwell.ground.sqlite.database import open_database
from upwell.memory.library import Library
from upwell.memory.sqlite.store import OWNER, SqliteStore
from upwell.memory.transfer import exported
from upwell.migration.base import ImportedServer, Item, LeftOut, Setting, StorePlace, record
from upwell.migration.moving import DELETED, EMPTY, PRESENT, SAME_TEXT, MovingIn
from upwell.migration.plan import ImportPlan
from upwell.migration.projects import Projects

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
SHOP = Projects(given={"shop": "/code/shop"})


@dataclass
class Sample:
    """A program that has just these items."""

    items: list[Item]
    name: str = "sample"
    usual: str = "nowhere"

    def stores(self, place: StorePlace) -> list[Path]:
        return []

    def read(self, path: Path, place: StorePlace) -> Iterator[Item]:
        yield from self.items


@dataclass
class Settings:
    """A configuration that refuses one key."""

    written: list[Any] = field(default_factory=list)

    def obstacle(self, item: Setting | ImportedServer) -> str:
        return "refused" if isinstance(item, Setting) and item.key == ("no",) else ""

    def write(self, settings: Any, servers: Any) -> None:
        self.written += [*settings, *servers]


@dataclass
class Home:
    library: Library
    settings: Settings
    folder: Path

    async def plan(self, *items: Item, projects: Projects = SHOP) -> ImportPlan:
        moving = MovingIn(self.library, self.settings)
        place = place_at(self.folder)
        return await moving.plan(Sample(list(items)), [self.folder], place, projects)

    async def take(self, *items: Item, projects: Projects = SHOP) -> ImportPlan:
        plan = await self.plan(*items, projects=projects)
        moving = MovingIn(self.library, self.settings)
        await moving.carry_out(plan, lambda done, total: None)
        return plan

    async def texts(self) -> list[str]:
        return sorted([memory.text async for memory in exported(self.library)])


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    database = open_database(tmp_path / "memory.db", [OWNER], synchronous="NORMAL")
    yield Home(Library(SqliteStore(database)), Settings(), tmp_path)
    await database.aclose()


def reasons(plan: ImportPlan) -> dict[str, int]:
    return {why: omission.count for why, omission in plan.left_out.items()}


async def test_a_dry_run_counts_and_writes_nothing(home: Home) -> None:
    plan = await home.plan(
        record("sample", "1", "Prices are integers", kind="decision", project_name="shop"),
        record("sample", "2", "Ask first"),
        Setting(("surface", "enabled"), True),
        ImportedServer("fs", {"command": "x"}),
    )
    assert plan.counts == {
        ("decisions", "/code/shop"): 1,
        ("context", ""): 1,
        ("setting", "config.toml"): 1,
        ("server", "config.toml"): 1,
    }
    assert await home.texts() == []
    assert home.settings.written == []


async def test_a_real_run_has_the_counts_of_the_dry_run(home: Home) -> None:
    items = [record("sample", str(number), f"fact {number}") for number in range(3)]
    expected = await home.plan(*items)
    plan = await home.take(*items)
    assert plan.described(dry_run=False) == {**expected.described(dry_run=True), "dry_run": False}
    assert await home.texts() == ["fact 0", "fact 1", "fact 2"]


async def test_a_second_run_imports_nothing(home: Home) -> None:
    items = [record("sample", "1", f"the token is {TOKEN}")]
    await home.take(*items)
    plan = await home.take(*items)
    assert (plan.total, reasons(plan)) == (0, {PRESENT: 1})


async def test_a_text_that_changed_replaces_the_earlier_one(home: Home) -> None:
    await home.take(record("sample", "1", "Uses npm"))
    plan = await home.take(record("sample", "1", "Uses pnpm"))
    assert (plan.total, plan.changed) == (1, 1)
    assert await home.texts() == ["Uses pnpm"]


async def test_memories_that_the_user_deleted_do_not_come_back(home: Home) -> None:
    (memory,) = (await home.take(record("sample", "1", "Wrong"))).memories
    await home.library.delete(memory.id)
    assert reasons(await home.take(record("sample", "1", "Wrong"))) == {DELETED: 1}
    assert await home.texts() == []


async def test_duplicates_and_empty_texts_stay_out(home: Home) -> None:
    await home.library.add({"text": "Known here", "project": "/code/shop"})
    plan = await home.take(
        record("sample", "1", "Known here", project="/code/shop"),
        record("sample", "2", "Twice"),
        record("sample", "3", "Twice"),
        record("sample", "4", "Twice", project="/code/other"),
        record("sample", "5", "  "),
    )
    assert reasons(plan) == {SAME_TEXT: 2, EMPTY: 1}
    assert plan.total == 2


async def test_secrets_are_masked_and_counted(home: Home) -> None:
    plan = await home.take(record("sample", "1", f"the token is {TOKEN}"))
    assert sum(plan.redacted.values()) == 1
    assert TOKEN not in str(await home.texts())
    assert TOKEN not in str(plan.described(dry_run=True))


async def test_examples_of_omitted_records_have_no_secrets(home: Home) -> None:
    plan = await home.plan(
        LeftOut("odd", f"the token is {TOKEN}"),
        record("sample", "1", f"the token is {TOKEN}", project_name="unknown"),
    )
    assert TOKEN not in str(plan.described(dry_run=True))


async def test_a_project_without_a_folder_stays_out_and_says_what_to_do(home: Home) -> None:
    plan = await home.plan(record("sample", "1", "x", project_name="blog"))
    (why,) = plan.left_out
    assert "--project blog=FOLDER" in why


async def test_files_are_relative_to_the_project(home: Home) -> None:
    paths = ["/code/shop/a.py", "b.py", "/etc/c"]
    item = record("sample", "1", "x", paths=paths, project_name="shop")
    (memory,) = (await home.plan(item)).memories
    assert memory.paths == ("a.py", "b.py", "/etc/c")


async def test_provenance_is_kept(home: Home) -> None:
    await home.take(record("sample", "7", "x", created_at=1_753_012_800_000, session="s"))
    (memory,) = [memory async for memory in exported(home.library)]
    assert (memory.source, memory.created_at) == ("sample:7", 1_753_012_800.0)
    assert (memory.provenance.door, memory.provenance.server) == ("import", "sample")


async def test_a_memory_that_cannot_be_stored_leaves_the_others(home: Home) -> None:
    plan = await home.take(record("sample", "1", "fine"), record("sample", "2", "x" * 1_000_001))
    assert (plan.total, sum(reasons(plan).values())) == (1, 1)


async def test_settings_are_written_unless_the_configuration_refuses_them(home: Home) -> None:
    server, setting = ImportedServer("fs", {"command": "x"}), Setting(("yes",), 1)
    plan = await home.take(server, setting, Setting(("no",), 1, "their.name"))
    assert home.settings.written == [setting, server]
    assert plan.left_out["refused"].examples == ["their.name"]
