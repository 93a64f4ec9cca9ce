"""Reading on: what was left out of a shortened result can be fetched by its key."""

from collections.abc import Mapping
from typing import Any, Protocol

from upwell.compress.originals import Kept
from upwell.compress.progressive import DEFAULT_CHUNK_CHARS, chunk
from upwell.ground.errors import UsageError
from upwell.tools.base import READ_ONLY, Result, Tool, text_result

MAX_CHUNK_CHARS = 100_000

_LOOK_AHEAD = 256


class Originals(Protocol):
    """What is kept under keys."""

    async def find(self, key: str) -> Kept: ...

    async def slice(self, key: str, start: int, end: int | None) -> str: ...


def read_more_tool(originals: Originals) -> Tool:
    """`read_more(key, offset?, limit?)`: the original from `offset` on, byte for byte."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        offset = args.get("offset", 0)
        limit = args.get("limit", DEFAULT_CHUNK_CHARS)
        if offset < 0 or not 1 <= limit <= MAX_CHUNK_CHARS:
            raise UsageError(f"offset must be 0 or more, limit 1 to {MAX_CHUNK_CHARS:,}")
        kept = await originals.find(args["key"])
        if offset > kept.chars:
            raise UsageError(
                f"offset {offset:,} is past the end", hint=f"the text has {kept.chars:,} characters"
            )
        ahead = await originals.slice(kept.key, offset, offset + limit + _LOOK_AHEAD)
        return text_result(chunk(ahead, 0, limit))

    return Tool(
        name="read_more",
        description=(
            "The original of a shortened result, in chunks. Give the key that its notice names, "
            "and the offset to read from (characters, from 0). Each chunk ends with a footer that "
            "says where it stands; split on the last footer to put chunks together."
        ),
        properties={
            "key": {"type": "string"},
            "offset": {"type": "integer", "description": "Default 0."},
            "limit": {
                "type": "integer",
                "description": f"Characters a chunk, default {DEFAULT_CHUNK_CHARS}.",
            },
        },
        required=("key",),
        annotations=READ_ONLY,
        run=run,
    )
