"""The commands `stm add|search|delete|clear`."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

from upwell.cli.command import Argument, Group, Option
from upwell.cli.output import Json, note, note_masked, say, say_json, table
from upwell.cli.session import with_memory
from upwell.ground.errors import StoreError
from upwell.ground.project import repository_of
from upwell.ground.text.words import counted

if TYPE_CHECKING:
    from upwell.app import MemoryApp


stm = Group("Short notes in stm.json. A note that has not been viewed for 35 days is cleared.")


@stm.command()
def add(
    content: Annotated[str, Argument(metavar="CONTENT", help="The note. `-` reads stdin.")],
    as_json: Json = False,
) -> None:
    """Store a note and print its id."""
    from upwell.memory.notes import Origin
    from upwell.tools.notes import ADDED, described

    text = sys.stdin.read() if content == "-" else content
    origin = Origin(project=repository_of(os.getcwd()))

    async def work(app: "MemoryApp") -> None:
        entry, rules = app.notes.add(text, origin)
        note_masked(rules)
        _report(app, ADDED)
        if as_json:
            say_json(described([entry])[0])
        else:
            say(entry.id)

    with_memory(work, tolerant=True)


@stm.command()
def search(
    query: Annotated[
        str | None, Argument(metavar="QUERY", help="Words that the note contains.")
    ] = None,
    note_id: Annotated[str | None, Option("--id")] = None,
    date: Annotated[str | None, Option(help="Date of creation, YYYY-MM-DD in UTC.")] = None,
    as_json: Json = False,
) -> None:
    """Find notes. A note that is found counts as viewed."""
    from upwell.tools.notes import NOTHING_FOUND, described

    async def work(app: "MemoryApp") -> None:
        notes = app.notes.search(query=query, id=note_id, date=date)
        _report(app, "" if notes else NOTHING_FOUND)
        if as_json:
            say_json(described(notes))
        else:
            table(("id", "created_at", "content"), described(notes))

    with_memory(work, tolerant=True)


@stm.command()
def delete(note_id: Annotated[str, Argument(metavar="ID")]) -> None:
    """Delete a note for good."""
    from upwell.tools.notes import DELETED

    async def work(app: "MemoryApp") -> None:
        if not app.notes.delete(note_id):
            raise StoreError(f"no note {note_id!r}", hint="`upwell stm search` lists ids")
        _report(app, DELETED)
        say(note_id)

    with_memory(work, tolerant=True)


@stm.command()
def clear() -> None:
    """Clear notes not viewed for 35 days. This also happens on its own."""

    async def work(app: "MemoryApp") -> None:
        removed = app.notes.clear()
        days = app.notes.options.retention_days
        trash_note = f"; kept for 30 days in {app.notes.trash}" if removed else ""
        cleared = counted(removed, "note")
        _report(app, f"cleared {cleared} not viewed for {days} days{trash_note}")

    with_memory(work, tolerant=True)


def _report(app: "MemoryApp", status: str) -> None:
    from upwell.tools.notes import moved

    if report := moved(app.notes):
        note(f"upwell: {report}")
    if status and app.config.shows_status():
        note(status)
