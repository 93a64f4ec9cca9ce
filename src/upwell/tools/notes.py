"""Short-term notes: `add_memory`, `search_memory`, `delete_memory` (seed 001).

Status lines ("STM entry added") come only when the user asked for them; data and ids always do.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from upwell.ground.errors import UsageError
from upwell.ground.text.times import iso
from upwell.ground.types import Trust
from upwell.memory.origins import Origin
from upwell.memory.stm import Entry, ShortTerm
from upwell.tools.base import READ_ONLY, WRITES, Result, Tool, text_result
from upwell.wire.rawjson import dumps

ADDED = "STM entry added"
DELETED = "STM entry deleted"
NOTHING_FOUND = "No matching STM entries found"


def add_tool(notes: ShortTerm, project: str | None, *, status: bool) -> Tool:
    """`add_memory(content)`: keep a note. It belongs to the project, and an agent stands behind
    it: that is said wherever it is shown."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        origin = Origin(project=project, trust=Trust.AGENT, session=session)
        entry, rules = await asyncio.to_thread(notes.add, args["content"], origin)
        said = [entry.id]
        said += [f"a secret was masked before it was kept ({rule})" for rule in rules]
        return _result(notes, said, ADDED if status else "")

    return Tool(
        name="add_memory",
        description=(
            "Keep a short note for later work: a decision and its reason, a pitfall, a "
            "preference. One thing a note, understandable by itself, naming the files it is "
            "about. Gives its id. A note that nobody looks at is forgotten after "
            f"{notes.options.retention_days} days."
        ),
        properties={"content": {"type": "string"}},
        required=("content",),
        annotations=WRITES,
        run=run,
    )


def search_tool(notes: ShortTerm, project: str | None, *, status: bool) -> Tool:
    """`search_memory(query?, id?, date?)`: at most three notes, whole."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        wanted = {name: args.get(name) for name in ("query", "id", "date")}
        found = await asyncio.to_thread(lambda: notes.search(**wanted, project=project))
        shown = dumps(described(found)).decode()
        return _result(notes, [shown], NOTHING_FOUND if status and not found else "")

    return Tool(
        name="search_memory",
        description=(
            "Look into the short notes of earlier work, when something is needed to understand "
            "what is going on or to answer. Give a query of descriptive keywords, or the id of a "
            "note, or the day it was made; what is given all applies. Gives the "
            f"{notes.options.most} that fit best, whole: most occurrences first, then newest. "
            "What is found stays; a note "
            f"that nobody finds is forgotten after {notes.options.retention_days} days."
        ),
        properties={
            "query": {"type": "string", "description": "Keywords that the note contains."},
            "id": {"type": "string"},
            "date": {"type": "string", "description": "The day it was made, UTC: YYYY-MM-DD."},
        },
        annotations=READ_ONLY,
        run=run,
    )


def delete_tool(notes: ShortTerm, project: str | None, *, status: bool) -> Tool:
    """`delete_memory(id)`."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        wanted = args["id"].strip()
        if not await asyncio.to_thread(lambda: notes.delete(wanted, project=project)):
            raise UsageError(f"no note has the id {wanted!r}", hint="search_memory finds ids")
        return _result(notes, [wanted], DELETED if status else "")

    return Tool(
        name="delete_memory",
        description=(
            "Delete a short note by its id, when it is wrong or has served. Notes that nobody "
            f"looks at go by themselves after {notes.options.retention_days} days."
        ),
        properties={"id": {"type": "string"}},
        required=("id",),
        annotations={**WRITES, "destructiveHint": True},
        run=run,
    )


def described(entries: Sequence[Entry]) -> list[dict[str, str | None]]:
    """Notes as JSON, with the keys of the file."""
    return [
        {
            "id": entry.id,
            "content": entry.content,
            "created_at": iso(entry.created_at),
            "viewed_at": iso(entry.viewed_at),
        }
        for entry in entries
    ]


def moved(notes: ShortTerm) -> str:
    """What became of a file that could not be read; said once, "" otherwise."""
    aside = notes.file.take_report()
    return f"stm.json could not be read; it was moved to {aside} and notes start anew" * bool(aside)


def _result(notes: ShortTerm, said: Sequence[str], status: str) -> Result:
    return text_result("\n".join(said), *filter(None, (moved(notes), status)))
