"""Originals are stored in full, read in part, and expire."""

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from upwell.compress.originals import BUSY, LARGE, PART_CHARS, SECRET, Originals
from upwell.ground.errors import KeyUnknown
from upwell.ground.ledger import OWNER, EntryKind, TtlStore
from upwell.ground.sqlite.database import Database, open_database


@dataclass
class ManualTime:
    """A clock that only the test moves."""

    at: float = 1_000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def originals(clock: ManualTime, secret: bytes = b"s" * 32) -> Originals:
    return Originals(
        durable=TtlStore(clock=clock),
        private=TtlStore(clock=clock),
        secret=secret,
        has_secret=lambda text: "ghp_" in text,
    )


async def test_the_original_and_any_slice_can_be_read() -> None:
    originals_store = originals(ManualTime())
    text = "añ\ud83d\r\n\0" + "0123456789" * 90_000 + "end"
    key = (await originals_store.keep(text, "log.txt")).key
    assert await originals_store.get(key) == text
    assert (
        await originals_store.slice(key, PART_CHARS - 3, PART_CHARS + 4)
        == text[PART_CHARS - 3 : PART_CHARS + 4]
    )
    assert (await originals_store.find(key)).name == "log.txt"


async def test_a_key_depends_on_text_and_home() -> None:
    clock = ManualTime()
    key = originals(clock).key_of("text")
    assert originals(clock).key_of("text") == key
    assert originals(clock, secret=b"t" * 32).key_of("text") != key


async def test_a_key_of_one_principal_is_unknown_to_another() -> None:
    originals_store = originals(ManualTime())
    ada, bob = originals_store.of("ada"), originals_store.of("bob")
    key = (await ada.keep("text")).key
    assert await ada.get(key) == "text"
    assert len({key, originals_store.key_of("text"), bob.key_of("text")}) == 3
    for other in (originals_store, bob):
        with pytest.raises(KeyUnknown):
            await other.get(key)
    assert originals_store.of("") is originals_store


async def test_reading_an_original_restarts_its_time_to_live() -> None:
    clock = ManualTime()
    originals_store = originals(clock)
    key = (await originals_store.keep("text")).key
    for _ in range(3):
        clock.at += 80_000
        assert await originals_store.get(key) == "text"
    clock.at += 90_000
    with pytest.raises(KeyUnknown):
        await originals_store.get(key)


async def test_a_text_with_a_secret_is_never_written_to_disk() -> None:
    clock = ManualTime()
    durable = TtlStore(clock=clock)
    originals_store = Originals(
        durable=durable,
        private=TtlStore(clock=clock),
        secret=b"s" * 32,
        has_secret=lambda text: True,
    )
    key = (await originals_store.keep("token")).key
    assert await originals_store.get(key) == "token"
    assert await durable.scan("original") == []


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Database]:
    database = open_database(tmp_path / "ledger.db", [OWNER], synchronous="NORMAL")
    yield database
    await database.aclose()


async def test_a_locked_database_does_not_delay_a_call(ledger: Database) -> None:
    originals_store = Originals(
        durable=TtlStore(ledger),
        private=TtlStore(),
        secret=b"s" * 32,
        has_secret=lambda text: "ghp_" in text,
    )
    before = await originals_store.keep("from before")
    holder = sqlite3.connect(ledger.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    text = "0123456789" * 200_000
    async with asyncio.timeout(4):
        while_held = await originals_store.keep(text, "log.txt")
        assert while_held.private == BUSY
        assert (await originals_store.keep("ghp_x")).private == SECRET
        assert await originals_store.get(while_held.key) == text
        assert await originals_store.get(before.key) == "from before"
    holder.execute("ROLLBACK")
    holder.close()
    assert not (await originals_store.keep("later")).private


def with_room(disk: int, memory: int) -> Originals:
    """Originals with this many bytes on disk and in memory."""

    def store(cap: int) -> TtlStore:
        return TtlStore(caps={EntryKind.ORIGINAL: cap})

    return Originals(
        durable=store(disk),
        private=store(memory),
        secret=b"s" * 32,
        has_secret=lambda text: "ghp_" in text,
        max_bytes=disk,
    )


async def test_originals_of_one_result_do_not_evict_each_other() -> None:
    originals_store = with_room(disk=100_000, memory=200_000)
    texts = [letter * 60_000 for letter in "abcd"]
    kept = []
    for text in texts:
        kept.append(await originals_store.keep(text, "", kept))
    assert [original.private for original in kept] == ["", LARGE, LARGE, LARGE]
    readable = await originals_store.readable(kept)
    for original, text in zip(readable, texts, strict=True):
        assert await originals_store.get(original.key) == text


NOISE = random.Random(1).randbytes(250_000).hex()


@pytest.mark.parametrize("text", [NOISE, f"ghp_{NOISE}"])
async def test_a_text_without_room_gets_no_key(text: str) -> None:
    originals_store = with_room(disk=100_000, memory=200_000)
    (original,) = await originals_store.readable([await originals_store.keep(text)])
    assert (original.key, original.private) == ("", "")


async def test_two_long_outputs_with_secrets_have_room_beside_each_other() -> None:
    """Uncompressed, not even one of these outputs would fit into the memory for originals."""
    originals_store = with_room(disk=100_000, memory=100_000)
    texts = [f"ghp_{letter}\n" + f"the {letter} line of the log\n" * 20_000 for letter in "ab"]
    originals = [await originals_store.keep(text) for text in texts]
    for original, text in zip(await originals_store.readable(originals), texts, strict=True):
        assert await originals_store.get(original.key) == text
        assert await originals_store.slice(original.key, 262_140, 262_150) == text[262_140:262_150]
