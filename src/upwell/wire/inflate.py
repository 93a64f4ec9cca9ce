"""The body of a response, decompressed in small pieces.

A kilobyte of a compressed body may expand to a megabyte. Decompressing a whole body at once would
hold up every other call in the process, and could fill the memory before a size limit is checked.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2

ACCEPTED = "gzip, deflate"
"""The encodings that we request and read."""
PIECE_BYTES = 65_536
_EITHER_HEADER = 32 + zlib.MAX_WBITS
_IDENTITY = ("", "identity")


async def pieces_of(response: "httpx2.Response") -> AsyncIterator[bytes]:
    """The decoded body. A compressed body comes in pieces of at most `PIECE_BYTES`, and other tasks
    get a turn after each piece.

    Raises:
        ValueError: the body is compressed in another way or more than once, or is damaged.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding in _IDENTITY:
        async for chunk in response.aiter_raw():
            yield chunk
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ValueError(f"content-encoding {encoding[:60]!r} was not requested")
    decoder = zlib.decompressobj(_EITHER_HEADER)
    async for chunk in response.aiter_raw():
        data = chunk
        while data or not decoder.eof:
            piece = _inflated(decoder, data)
            data = decoder.unconsumed_tail
            if piece:
                yield piece
                await asyncio.sleep(0)
            if decoder.eof or (not data and len(piece) < PIECE_BYTES):
                break


def _inflated(decoder: "zlib._Decompress", data: bytes) -> bytes:
    try:
        return decoder.decompress(data, PIECE_BYTES)
    except zlib.error as error:
        raise ValueError(f"the compressed body is damaged: {error}") from error
