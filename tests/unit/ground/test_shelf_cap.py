"""What may be kept is counted in bytes of the file: ten times as much is written, and it holds."""

import random
from pathlib import Path

import pytest

from upwell.ground.db import open_database
from upwell.ground.shelf import OWNER, Options, SqliteShelf

CAP = 2_000_000


@pytest.mark.parametrize("size", [300, 1_200, 5_000, 100_000])
async def test_the_file_stays_within_the_cap(tmp_path: Path, size: int) -> None:
    database = open_database(tmp_path / "ledger.db", [OWNER], synchronous="NORMAL")
    shelf = SqliteShelf(database, options=Options(max_bytes={"k": CAP}))
    dice, written, last = random.Random(size), 0, ""
    while written < 10 * CAP:
        some = {}
        for _ in range(max(1, 50_000 // size)):
            value = dice.randbytes(dice.randint(size // 2, size * 3 // 2))
            last = f"{dice.getrandbits(256):064x}"
            some[last] = value
            written += len(last) + len(value)
        await shelf.put("k", some, ttl_seconds=9e9)
    assert last in await shelf.get("k", [last])
    assert sum(len(item.value) for item in await shelf.scan("k")) > CAP / 5
    await database.aclose()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= CAP * 1.1


async def test_what_another_process_wrote_counts_too(tmp_path: Path) -> None:
    """A shelf that is opened anew sees at its first entry how much there is."""
    for _ in range(8):
        database = open_database(tmp_path / "ledger.db", [OWNER], synchronous="NORMAL")
        shelf = SqliteShelf(database, options=Options(max_bytes={"k": CAP}))
        for _ in range(4):
            name = f"{random.getrandbits(256):064x}"
            await shelf.put("k", {name: b"x" * 100_000}, ttl_seconds=9e9)
        total = sum(len(item.value) for item in await shelf.scan("k"))
        await database.aclose()
    assert CAP / 2 < total <= CAP * 1.1
