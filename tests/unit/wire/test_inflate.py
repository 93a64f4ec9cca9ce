"""A compressed body is read in small pieces, and other tasks get their turns in between."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator

import httpx2
import pytest

from upwell.wire.http import PIECE_BYTES, pieces_of


def response(body: bytes, encoding: str, chunk: int = 1000) -> httpx2.Response:
    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(body), chunk):
            yield body[at : at + chunk]

    headers = {"content-encoding": encoding} if encoding else {}
    return httpx2.Response(200, headers=headers, content=chunks())


async def read(body: bytes, encoding: str, chunk: int = 1000) -> bytes:
    return b"".join([piece async for piece in pieces_of(response(body, encoding, chunk))])


TEXT = b"".join(b"line %d of an answer\n" % number for number in range(20_000))


@pytest.mark.parametrize("chunk", [1, 7, 1000, 10_000_000])
async def test_every_encoding_gives_the_same_body(chunk: int) -> None:
    short = TEXT[:3000] if chunk == 1 else TEXT
    assert await read(short, "", chunk) == short
    assert await read(short, "identity", chunk) == short
    assert await read(gzip.compress(short), "gzip", chunk) == short
    assert await read(gzip.compress(short), "GZIP ", chunk) == short
    assert await read(zlib.compress(short), "deflate", chunk) == short
    assert await read(b"", "gzip", chunk) == b""


async def test_a_bomb_arrives_in_small_pieces_and_others_get_their_turns() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    bomb = gzip.compress(b"a" * 50_000_000)
    task = asyncio.create_task(other())
    pieces = 0
    async for piece in pieces_of(response(bomb, "gzip", chunk=1_000_000)):
        assert len(piece) <= PIECE_BYTES
        pieces += 1
    task.cancel()
    assert pieces >= 50_000_000 // PIECE_BYTES
    assert turns >= pieces


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"plain", "gzip"),
        (gzip.compress(TEXT)[:50] + b"damage" + gzip.compress(TEXT)[56:], "gzip"),
        (gzip.compress(gzip.compress(TEXT)), "gzip, gzip"),
        (b"x", "br"),
    ],
)
async def test_what_cannot_be_decoded_is_an_error(body: bytes, encoding: str) -> None:
    with pytest.raises(ValueError, match=r"damaged|not requested"):
        await read(body, encoding)
