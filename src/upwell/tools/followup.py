"""Reading on: what was left out of a shortened result can be fetched by its key."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from upwell.compress.progressive import DEFAULT_CHUNK_CHARS, chunk
from upwell.ground.errors import KeyUnknown, UsageError
from upwell.tools.base import READ_ONLY, Result, Tool, text_result

MAX_CHUNK_CHARS = 100_000

Fetch = Callable[[str], Awaitable[str | None]]


def read_more_tool(fetch: Fetch) -> Tool:
    """`read_more(key, offset?, limit?)`: the original from `offset` on, byte for byte.

    `fetch` gives the original text kept under a key, None when there is none.
    """

    async def run(args: Mapping[str, Any], session: str) -> Result:
        offset = args.get("offset", 0)
        limit = args.get("limit", DEFAULT_CHUNK_CHARS)
        if offset < 0 or not 1 <= limit <= MAX_CHUNK_CHARS:
            raise UsageError(f"offset must be 0 or more, limit 1 to {MAX_CHUNK_CHARS}")
        text = await fetch(args["key"])
        if text is None:
            raise KeyUnknown(args["key"])
        if offset > len(text):
            raise UsageError(
                f"offset {offset} is past the end: the text has {len(text)} characters"
            )
        return text_result(chunk(text, offset, limit))

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
