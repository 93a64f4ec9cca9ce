"""The processes of one home share one copy of the team's memories, which one of them keeps."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from filelock import FileLock
from tests.contracts.stores import open_team
from tests.machines import SHOP, clone

from upwell.app import local_copy
from upwell.config import load
from upwell.ground.clock import Deadline
from upwell.ground.errors import StoreError
from upwell.ground.types.memory import Query, Scope
from upwell.memory.recall import StoreRecall
from upwell.memory.sqlite import copied
from upwell.memory.sqlite.team_store import TeamStore
from upwell.testing import ManualClock


def fails_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first note of the projects in use fails, as if the disk were full. The keeper itself
    notes them with "", the memories of all projects."""
    use, failures = copied.use, [StoreError("the disk is full")]

    def used(db: sqlite3.Connection, projects: list[str], now: float) -> None:
        if failures and "" not in projects:
            raise failures.pop()
        use(db, projects, now)

    monkeypatch.setattr(copied, "use", used)


async def test_the_projects_of_every_process_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_copy, "TURN_SECONDS", 0.02)
    project = clone(tmp_path / "shop")
    flags = {"store.url": "https://upwell.example", "store.token": "t" * 43, "store.local": True}
    config = load(tmp_path, environment={}, flags=flags)
    keeper, close_keeper = open_team(tmp_path, ManualClock())
    daemon, close_daemon = open_team(tmp_path, ManualClock())
    assert isinstance(keeper, TeamStore)
    fails_once(monkeypatch)
    with FileLock(tmp_path / local_copy.LOCK):
        waiting = asyncio.create_task(local_copy.keep_copy(config, daemon))
        query = Query(texts=("tide",), scope=Scope(project=project))
        await StoreRecall(daemon).search(query, Deadline.after(30))
        async with asyncio.timeout(20):
            while SHOP not in {cursor.project for cursor in await keeper.cursors()}:
                await asyncio.sleep(0.02)
        waiting.cancel()
        await asyncio.wait({waiting})
    await close_daemon()
    await close_keeper()
