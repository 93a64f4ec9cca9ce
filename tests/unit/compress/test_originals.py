"""Originals: kept in full, read in part, gone when their time is up."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from upwell.compress.originals import BUSY, PART_CHARS, SECRET, Originals
from upwell.ground.db import Database, open_database
from upwell.ground.errors import KeyUnknown
from upwell.ground.shelf import OWNER, MemoryShelf, SqliteShelf


@dataclass
class Hand:
    """A clock that stands still until it is moved."""

    at: float = 1_000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def originals(clock: Hand, tenant: str = "default", secret: bytes = b"s" * 32) -> Originals:
    return Originals(
        durable=MemoryShelf(clock=clock),
        private=MemoryShelf(clock=clock),
        secret=secret,
        has_secret=lambda text: "ghp_" in text,
        tenant=tenant,
    )


async def test_the_whole_and_any_slice_come_back() -> None:
    kept = originals(Hand())
    text = "añ\ud83d\r\n\0" + "0123456789" * 90_000 + "end"
    key = (await kept.keep(text, "log.txt")).key
    assert await kept.get(key) == text
    assert (
        await kept.slice(key, PART_CHARS - 3, PART_CHARS + 4)
        == text[PART_CHARS - 3 : PART_CHARS + 4]
    )
    assert (await kept.find(key)).name == "log.txt"


async def test_keys_are_the_same_for_the_same_text_tenant_and_home_only() -> None:
    clock = Hand()
    key = originals(clock).key_of("text")
    assert originals(clock).key_of("text") == key
    assert originals(clock, tenant="b").key_of("text") != key
    assert originals(clock, secret=b"t" * 32).key_of("text") != key


async def test_a_key_of_one_principal_opens_nothing_for_another() -> None:
    kept = originals(Hand())
    ada, bob = kept.of("ada"), kept.of("bob")
    key = (await ada.keep("text")).key
    assert await ada.get(key) == "text"
    assert len({key, kept.key_of("text"), bob.key_of("text")}) == 3
    for other in (kept, bob):
        with pytest.raises(KeyUnknown):
            await other.get(key)
    assert kept.of("") is kept


async def test_reading_gives_a_new_day_to_live_and_not_reading_none() -> None:
    clock = Hand()
    kept = originals(clock)
    key = (await kept.keep("text")).key
    for _ in range(3):
        clock.at += 80_000
        assert await kept.get(key) == "text"
    clock.at += 90_000
    with pytest.raises(KeyUnknown):
        await kept.get(key)


async def test_a_text_with_a_secret_is_never_put_on_the_durable_shelf() -> None:
    clock = Hand()
    durable = MemoryShelf(clock=clock)
    kept = Originals(
        durable=durable,
        private=MemoryShelf(clock=clock),
        secret=b"s" * 32,
        has_secret=lambda text: True,
    )
    key = (await kept.keep("token")).key
    assert await kept.get(key) == "token"
    assert await durable.scan("original") == []


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Database]:
    database = open_database(tmp_path / "ledger.db", [OWNER], synchronous="NORMAL")
    yield database
    await database.aclose()


async def test_whoever_holds_the_ledger_does_not_hold_up_a_call(ledger: Database) -> None:
    kept = Originals(
        durable=SqliteShelf(ledger),
        private=MemoryShelf(),
        secret=b"s" * 32,
        has_secret=lambda text: "ghp_" in text,
    )
    before = await kept.keep("from before")
    holder = sqlite3.connect(ledger.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    text = "0123456789" * 200_000
    async with asyncio.timeout(4):
        while_held = await kept.keep(text, "log.txt")
        assert while_held.private == BUSY
        assert (await kept.keep("ghp_x")).private == SECRET
        assert await kept.get(while_held.key) == text
        assert await kept.get(before.key) == "from before"
    holder.execute("ROLLBACK")
    holder.close()
    assert not (await kept.keep("later")).private
