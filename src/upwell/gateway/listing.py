"""Lists of servers, page by page, as far as anybody could use them: reading a long one must not
hold up the calls of the others."""

import asyncio
from collections.abc import Sequence

from upwell.wire.peer import LARGE_BYTES
from upwell.wire.rawjson import RawArray, RawObject, kind_of

MOST_TOOLS = 6_000
"""So many tools of one server are listed, and no more is read of its list."""
MOST_LISTED = 10_000
"""So many of anything else."""
MOST_TOOL_BYTES = 256 * 1024


async def read_page(raw: bytes, member: str, most: int) -> tuple[Sequence[RawObject], bytes]:
    """The first entries of one page of a list, and the cursor of the next. A large one is read
    beside the loop.

    Raises:
        NotJson: it cannot be read.
    """
    if len(raw) < LARGE_BYTES:
        return _opened(raw, member, most)
    return await asyncio.to_thread(_opened, raw, member, most)


def _opened(raw: bytes, member: str, most: int) -> tuple[Sequence[RawObject], bytes]:
    page = RawObject.parse(raw)
    items = RawArray.parse(page.get(member) or b"[]").items
    objects = [RawObject.parse(item) for item in items[:most] if kind_of(item) == "object"]
    return objects, page.get("nextCursor") or b""


def without_huge(tools: Sequence[RawObject]) -> tuple[RawObject, ...]:
    """The tools that an agent could be shown."""
    return tuple(tool for tool in tools if _size(tool) <= MOST_TOOL_BYTES)


def _size(entry: RawObject) -> int:
    return sum(len(key) + len(value) for key, value in entry.members)
