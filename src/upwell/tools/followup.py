"""The tools that read the original of a shortened result."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from upwell.compress.base import RemainingBudget
from upwell.compress.folding import line_range, lines_of
from upwell.compress.originals import StoredOriginal
from upwell.compress.progressive import DEFAULT_CHUNK_CHARS, chunk
from upwell.ground.errors import UsageError
from upwell.ground.types.compression import Passage
from upwell.tools.base import READ_ONLY, Result, Run, Tool, text_result

MAX_CHUNK_CHARS = 100_000
SELECT_TOKENS = 4000
SEARCH_TOKENS = 1500
MAX_KEYS_NAMED = 60

_LOOK_AHEAD = 256
MAX_LINES_CHARS = 40_000
"""The maximum number of characters that `read_more(lines=…)` returns. Files up to about this size
are delivered whole by default (`READ_TOKENS` in `ground/context_windows.py`)."""


OnFollowUp = Callable[[StoredOriginal, str], None]
"""Called when an agent reads more of an original. Receives the original and the text that the agent
gets.
"""


class StoredOriginals(Protocol):
    async def find(self, key: str) -> StoredOriginal: ...

    async def get(self, key: str) -> str: ...

    async def slice(self, key: str, start: int, end: int | None) -> str: ...


def read_more_tool(originals: StoredOriginals, on_follow_up: OnFollowUp) -> Tool:
    """`read_more(key, lines?, query?, sections?, offset?, limit?)`: lines of an original, passages
    of it, sections of it, or a chunk that starts at `offset`."""
    search, select = _search(originals, on_follow_up), _select(originals, on_follow_up)

    async def run(args: Mapping[str, Any], session: str) -> Result:
        if "query" in args:
            return await search(args, session)
        if "lines" in args:
            return await _lines(originals, on_follow_up, args["key"], args["lines"])
        if "sections" in args:
            return await select(args, session)
        offset = args.get("offset", 0)
        limit = args.get("limit", DEFAULT_CHUNK_CHARS)
        if offset < 0 or not 1 <= limit <= MAX_CHUNK_CHARS:
            raise UsageError(f"offset must be 0 or more, limit 1 to {MAX_CHUNK_CHARS:,}")
        original = await originals.find(args["key"])
        if offset > original.chars:
            raise UsageError(
                f"offset {offset:,} is past the end",
                hint=f"the text has {original.chars:,} characters",
            )
        ahead = await originals.slice(original.key, offset, offset + limit + _LOOK_AHEAD)
        text = chunk(ahead, 0, limit)
        on_follow_up(original, text)
        return text_result(text)

    return Tool(
        name="read_more",
        description=(
            "The original of a shortened result. Pass the key from the result's notice and the "
            'lines to read, such as "33-44": the mark […12→45] stands for the twelve lines before '
            "line 45. Or search it with a query, or pass keys of sections from its table of "
            "contents. Or read chunks from an offset, in characters from 0. Each ends with a "
            "footer that states how many characters precede it; add that number to the offset "
            "for the next chunk. The chunks, joined without these footers, are the original."
        ),
        properties={
            "key": {"type": "string"},
            "lines": {"type": "string", "description": 'Such as "120-180"; instead of offset.'},
            "query": {"type": "string", "description": "Returns the passages that match."},
            "sections": {"type": "array", "items": {"type": "string"}},
            "offset": {"type": "integer", "description": "Default 0."},
            "limit": {
                "type": "integer",
                "description": f"Characters in a chunk; default {DEFAULT_CHUNK_CHARS}.",
            },
        },
        required=("key",),
        annotations=READ_ONLY,
        run=run,
    )


async def _lines(
    originals: StoredOriginals, on_follow_up: OnFollowUp, key: str, lines: str
) -> Result:
    first, last = line_range(lines)
    original = await originals.find(key)
    text = lines_of(await originals.get(original.key), first, last)
    if not text:
        raise UsageError(f"the text has no lines {lines}", hint="read it by offset")
    on_follow_up(original, text[:MAX_LINES_CHARS])
    if len(text) <= MAX_LINES_CHARS:
        return text_result(text)
    part = text[: text.rfind("\n", 0, MAX_LINES_CHARS)] if "\n" in text[:MAX_LINES_CHARS] else ""
    if not part:
        raise UsageError(f"line {first} is too long", hint="read it by offset")
    rest = first + 1 + part.count("\n")
    return text_result(part, f'[upwell] more: call again with lines="{rest}-{last}"')


def _select(originals: StoredOriginals, on_follow_up: OnFollowUp) -> Run:
    async def run(args: Mapping[str, Any], session: str) -> Result:
        from upwell.compress.selective import sections_of, select

        original = await originals.find(args["key"])
        passage = Passage(
            text=await originals.get(original.key), key=original.key, name=original.name
        )
        names = [str(name) for name in args["sections"]]
        offset = max(0, args.get("offset", 0))
        result = await asyncio.to_thread(
            select, passage, names, RemainingBudget(tokens=SELECT_TOKENS), offset
        )
        if len(result.unknown) == len(names):
            known = await asyncio.to_thread(sections_of, passage)
            raise UsageError(
                f"no section is called {', '.join(result.unknown[:5]) or '(nothing)'}",
                hint="sections: " + "; ".join(section.key for section in known[:MAX_KEYS_NAMED]),
            )
        on_follow_up(original, result.text)
        notices = []
        if result.unknown:
            notices.append(f"[upwell] no section is called {', '.join(result.unknown[:5])}")
        if result.next_offset is not None:
            notices.append(f"[upwell] more: call again with offset={result.next_offset}")
        return text_result(result.text, *notices)

    return run


def _search(originals: StoredOriginals, on_follow_up: OnFollowUp) -> Run:
    async def run(args: Mapping[str, Any], session: str) -> Result:
        from upwell.compress.selective import search_original

        original = await originals.find(args["key"])
        text = await originals.get(original.key)
        room = RemainingBudget(tokens=SEARCH_TOKENS)
        query = args["query"]
        matches = await asyncio.to_thread(search_original, text, query, room, original.name)
        on_follow_up(original, matches.text)
        if not matches.total:
            return text_result(f"No passage of the original matches {query!r}.")
        return text_result(
            matches.text,
            f"[upwell] {matches.shown} of {matches.total} matches;"
            " read_more continues from an offset.",
        )

    return run


def select_tool(originals: StoredOriginals, on_follow_up: OnFollowUp) -> Tool:
    """`select_sections(key, sections, offset?)`. `sections` are keys from the table of contents."""
    return Tool(
        name="select_sections",
        description=(
            "Sections of a shortened result's original, by the keys in its table of contents. The "
            "key of a group returns the table of that group."
        ),
        properties={
            "key": {"type": "string"},
            "sections": {"type": "array", "items": {"type": "string"}},
            "offset": {"type": "integer", "description": "Where the last answer ended."},
        },
        required=("key", "sections"),
        annotations=READ_ONLY,
        run=_select(originals, on_follow_up),
    )


def search_original_tool(originals: StoredOriginals, on_follow_up: OnFollowUp) -> Tool:
    """`search_original(key, query)`"""
    return Tool(
        name="search_original",
        description="Search the original of a shortened result; returns passages with offsets.",
        properties={"key": {"type": "string"}, "query": {"type": "string"}},
        required=("key", "query"),
        annotations=READ_ONLY,
        run=_search(originals, on_follow_up),
    )
