"""Reading on: what was left out of a shortened result can be fetched by its key."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from upwell.compress.fitted import Room
from upwell.compress.originals import Kept
from upwell.compress.progressive import DEFAULT_CHUNK_CHARS, chunk
from upwell.ground.errors import UsageError
from upwell.ground.types import Passage
from upwell.tools.base import READ_ONLY, Result, Tool, text_result

MAX_CHUNK_CHARS = 100_000
SELECT_TOKENS = 4000
SEARCH_TOKENS = 1500
MOST_KEYS_NAMED = 60

_LOOK_AHEAD = 256


CameBack = Callable[[Kept], None]
"""Hears that an agent came back for the rest: too little was shown."""


class Originals(Protocol):
    """What is kept under keys."""

    async def find(self, key: str) -> Kept: ...

    async def get(self, key: str) -> str: ...

    async def slice(self, key: str, start: int, end: int | None) -> str: ...


def read_more_tool(originals: Originals, came_back: CameBack) -> Tool:
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
        came_back(kept)
        ahead = await originals.slice(kept.key, offset, offset + limit + _LOOK_AHEAD)
        return text_result(chunk(ahead, 0, limit))

    return Tool(
        name="read_more",
        description=(
            "The original of a shortened result, in chunks. Give the key that its notice names, "
            "and the offset to read from (characters, from 0). Each chunk ends with a footer that "
            "says how many characters it gives: the next offset is this one plus that number. What "
            "precedes the last footer of each chunk, put together, is the original."
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


def select_tool(originals: Originals, came_back: CameBack) -> Tool:
    """`select_sections(key, sections, offset?)`: sections of an original by their keys."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        from upwell.compress.sectioning import sections_of
        from upwell.compress.selective import select

        kept = await originals.find(args["key"])
        passage = Passage(text=await originals.get(kept.key), key=kept.key, name=kept.name)
        names = [str(name) for name in args["sections"]]
        offset = max(0, args.get("offset", 0))
        found = await asyncio.to_thread(select, passage, names, Room(tokens=SELECT_TOKENS), offset)
        if len(found.unknown) == len(names):
            known = await asyncio.to_thread(sections_of, passage)
            raise UsageError(
                f"no section is called {', '.join(found.unknown[:5]) or '(nothing)'}",
                hint="there are: " + "; ".join(section.key for section in known[:MOST_KEYS_NAMED]),
            )
        came_back(kept)
        notices = []
        if found.unknown:
            notices.append(f"[upwell] no section is called {', '.join(found.unknown[:5])}")
        if found.next_offset is not None:
            notices.append(f"[upwell] more: the same sections with offset={found.next_offset}")
        return text_result(found.text, *notices)

    return Tool(
        name="select_sections",
        description=(
            "Sections of a shortened result's original, by the keys of its table of contents. A "
            "group's key gives that group's table."
        ),
        properties={
            "key": {"type": "string"},
            "sections": {"type": "array", "items": {"type": "string"}},
            "offset": {"type": "integer", "description": "To go on where the last answer ended."},
        },
        required=("key", "sections"),
        annotations=READ_ONLY,
        run=run,
    )


def search_original_tool(originals: Originals, came_back: CameBack) -> Tool:
    """`search_original(key, query)`: where an original speaks of something."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        from upwell.compress.search import search_original

        kept = await originals.find(args["key"])
        text = await originals.get(kept.key)
        room = Room(tokens=SEARCH_TOKENS)
        found = await asyncio.to_thread(search_original, text, args["query"], room, kept.name)
        came_back(kept)
        if not found.total:
            return text_result(f"Nothing in the original speaks of {args['query']!r}.")
        return text_result(
            found.text,
            f"[upwell] {found.shown} of {found.total} places; read_more reads on from an offset.",
        )

    return Tool(
        name="search_original",
        description="Search inside the original of a shortened result: places, with offsets.",
        properties={"key": {"type": "string"}, "query": {"type": "string"}},
        required=("key", "query"),
        annotations=READ_ONLY,
        run=run,
    )
