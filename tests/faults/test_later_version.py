"""A later version of upwell changes the tables of a home that this version has open and writes to.
Everything acknowledged stays, nobody takes the change for damage, and what this version can no
longer do, it refuses in one line."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.conftest import Upwell
from tests.doors.peer import Peer, text_of
from tests.faults.commands import Kill, sound_rows
from tests.faults.killing import kill, ready, start
from upwell.ground.sqlite.database import open_database
from upwell.memory.sqlite.store import OWNER

WRITER = """
    import asyncio, os, sys
    from pathlib import Path
    from upwell.app.store import Settings, StoreApp
    from upwell.ground.errors import StoreError

    async def main(home):
        app = StoreApp(Settings(home=Path(home), environment={}))
        print("ready", flush=True)
        number = 0
        while True:
            number += 1
            try:
                await app.memory.add_many([{"id": f"m{number}", "text": f"kettle number {number}"}])
                print(f"m{number}", flush=True)
            except StoreError as error:
                print("refused", str(error).replace("\\n", "|"), flush=True)
            await asyncio.sleep(0.01)

    asyncio.run(main(sys.argv[1]))
"""
IS_LATER = "was written by a later upwell (memory schema 3, this one knows 2)"
RESTART, UPGRADE = "restart this process", "upgrade upwell, or set UPWELL_HOME"
WAIT_SECONDS = 0.7


def add_a_column(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE memory ADD COLUMN mood TEXT NOT NULL DEFAULT ''")


def rename_columns(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE memory RENAME COLUMN text TO body")
    db.execute("ALTER TABLE trash RENAME TO bin")


Change = Callable[[sqlite3.Connection], None]


def open_as_later_version(path: Path, change: Change, kill_at: int = 0) -> bool:
    """Open the file in a process that has one more migration, and kill it at a step. Returns
    whether it survived."""
    owner = replace(OWNER, migrations=(*OWNER.migrations, change))
    child = os.fork()
    if child == 0:
        if kill_at:
            Kill(kill_at).install()
        open_database(path, [owner], synchronous="FULL")
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -9), code
    return code == 0


def version_of(path: Path) -> int:
    ((version,),) = sound_rows(path, "SELECT version FROM schema_version WHERE owner = 'memory'")
    return int(version)


def in_one_process(home: Path, change: Change) -> None:
    """Kill the migration at each step, while the writer writes. This process must have one thread
    only, because it forks."""
    path = home / "memory.db"
    writer = start(WRITER, str(home))
    ready(writer)
    time.sleep(WAIT_SECONDS)
    for step in range(1, 200):
        survived = open_as_later_version(path, change, step)
        assert version_of(path) == 3 or not survived
        if survived:
            break
    time.sleep(WAIT_SECONDS)
    lines = kill(writer)
    acknowledged = {line for line in lines if not line.startswith("refused")}
    refusals = [line for line in lines if line.startswith("refused")]
    present = [row[0] for row in sound_rows(path, "SELECT id FROM memory")]
    assert len(present) == len(set(present))
    assert acknowledged <= set(present), acknowledged - set(present)
    assert len(set(present) - acknowledged) <= 1
    assert len(acknowledged) > 10
    if change is add_a_column:
        assert refusals == []
    else:
        assert refusals
        assert all(IS_LATER in line and RESTART in line for line in refusals), refusals[:3]
    assert not [*home.glob("*.corrupt-*"), *home.glob("*.salvage*")]
    print(step)


CHANGES = {change.__name__: change for change in (add_a_column, rename_columns)}


@pytest.mark.parametrize("change", CHANGES)
def test_a_later_version_is_killed_while_it_changes_the_tables(
    environment: Mapping[str, str], home: Path, upwell: Upwell, change: str
) -> None:
    home.mkdir(mode=0o700)
    done = subprocess.run(
        [sys.executable, "-m", __spec__.name, home, change],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert int(done.stdout) > 10
    refusal = upwell("recall", "kettle")
    assert (refusal.code, refusal.out, len(refusal.err.splitlines())) == (1, "", 1)
    assert IS_LATER in refusal.err
    assert UPGRADE in refusal.err


@pytest.mark.parametrize("change", CHANGES)
def test_a_gateway_goes_on_when_a_later_version_has_changed_the_tables(
    environment: Mapping[str, str], home: Path, upwell: Upwell, change: str
) -> None:
    id = upwell("remember", "The harbour gate opens at dawn").line
    path = home / "memory.db"
    with Peer([sys.executable, "-m", "upwell", "serve"], env=environment) as gateway:
        gateway.hello()
        search = {"query": "when does the harbour gate open"}
        assert id in text_of(gateway.call("upwell__memory_search", **search))
        owner = replace(OWNER, migrations=(*OWNER.migrations, CHANGES[change]))
        open_database(path, [owner], synchronous="FULL")
        answer = json.dumps(gateway.call("upwell__memory_search", **search))
        if change == "add_a_column":
            assert id in answer
        else:
            assert IS_LATER in answer
        # Notes are in another file, which the later version has not changed.
        note = gateway.call("upwell__add_memory", content="The crane obeys Ada alone")
        assert not note.get("isError"), note
    assert sound_rows(path, "SELECT id FROM memory") == [(id,)]
    assert version_of(path) == 3
    assert "crane obeys Ada" in (home / "stm.json").read_text()
    assert not [*home.glob("*.corrupt-*"), *home.glob("*.salvage*")]


if __name__ == "__main__":
    in_one_process(Path(sys.argv[1]), CHANGES[sys.argv[2]])
