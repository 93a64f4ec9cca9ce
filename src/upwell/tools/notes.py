"""Short-term notes: `add_memory`, `search_memory`, `delete_memory`.

Status lines ("STM entry added") appear only if the user asked for them; data and ids always appear.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from upwell.ground.errors import UsageError
from upwell.ground.text.format import iso
from upwell.ground.types.memory import Trust
from upwell.memory.notes.file import Origin
from upwell.memory.notes.stm import Entry, ShortTerm
from upwell.tools.base import READ_ONLY, WRITES, Result, Tool, text_result
from upwell.wire.rawjson import dumps

ADDED = "STM entry added"
DELETED = "STM entry deleted"
NOTHING_FOUND = "No matching STM entries found"


def add_tool(notes: ShortTerm, project: str | None, *, status: bool) -> Tool:
    """`add_memory(content)`: store a note. It belongs to the project, and is labelled as an agent's
    note wherever it appears.
    """

    async def run(args: Mapping[str, Any], session: str) -> Result:
        origin = Origin(project=project, trust=Trust.AGENT, session=session)
        entry, rules = await asyncio.to_thread(notes.add, args["content"], origin)
        lines = [entry.id]
        lines += [f"a secret was masked before it was stored ({rule})" for rule in rules]
        return _result(notes, lines, ADDED if status else "")

    return Tool(
        name="add_memory",
        description=(
            "Store a short note for later work: a decision and its reason, a pitfall, a "
            "preference. One subject per note, understandable by itself, naming the files "
            "concerned. Returns its id. A note that nobody reads expires after "
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
        filters = {name: args.get(name) for name in ("query", "id", "date")}
        notes_found = await asyncio.to_thread(lambda: notes.search(**filters, project=project))
        shown = dumps(described(notes_found)).decode()
        return _result(notes, [shown], NOTHING_FOUND if status and not notes_found else "")

    return Tool(
        name="search_memory",
        description=(
            "Search the short notes of earlier work, when context is missing to understand the "
            "task or to answer. Pass descriptive keywords, the id of a note, or the day of its "
            f"creation; several conditions combine. Returns the {notes.options.most} best notes "
            "in full: most occurrences first, then newest. A note that is found stays; one that "
            f"nobody finds expires after {notes.options.retention_days} days."
        ),
        properties={
            "query": {"type": "string", "description": "Keywords in the note."},
            "id": {"type": "string"},
            "date": {"type": "string", "description": "Day of creation in UTC, YYYY-MM-DD."},
        },
        annotations=READ_ONLY,
        run=run,
    )


def delete_tool(notes: ShortTerm, project: str | None, *, status: bool) -> Tool:
    """`delete_memory(id)`."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        note_id = args["id"].strip()
        if not await asyncio.to_thread(lambda: notes.delete(note_id, project=project)):
            raise UsageError(f"no note has the id {note_id!r}", hint="search_memory finds ids")
        return _result(notes, [note_id], DELETED if status else "")

    return Tool(
        name="delete_memory",
        description=(
            "Delete a short note by its id, when it is wrong or no longer needed. Notes that "
            f"nobody reads expire by themselves after {notes.options.retention_days} days."
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
    """A notice, given once, that `stm.json` could not be read and was moved aside; or ""."""
    aside = notes.file.take_report()
    return f"stm.json could not be read; it was moved to {aside}, and a new one began" * bool(aside)


def _result(notes: ShortTerm, lines: Sequence[str], status: str) -> Result:
    return text_result("\n".join(lines), *filter(None, (moved(notes), status)))
