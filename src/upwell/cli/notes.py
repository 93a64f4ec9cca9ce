"""stm add|search|delete|clear"""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from upwell.cli.output import Json, note, say, say_json, table
from upwell.cli.session import with_app
from upwell.ground.errors import StoreError
from upwell.ground.project import repository_of
from upwell.ground.text.counts import counted

if TYPE_CHECKING:
    from upwell.app import App


stm = typer.Typer(
    help="Short notes, in stm.json. One that nobody looks at is forgotten after 35 days.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    app.add_typer(stm, name="stm")


@stm.command()
def add(
    content: Annotated[
        str, typer.Argument(metavar="CONTENT", help="What to note. `-` reads stdin.")
    ],
    as_json: Json = False,
) -> None:
    """Keep a note. Prints its id."""
    from upwell.memory.origins import Origin
    from upwell.tools.notes import ADDED, described

    said = typer.get_text_stream("stdin").read() if content == "-" else content
    origin = Origin(project=repository_of(os.getcwd()))

    async def work(app: "App") -> None:
        entry, rules = app.notes.add(said, origin)
        for rule in rules:
            note(f"upwell: a secret was masked before it was kept ({rule})")
        _tell(app, ADDED)
        if as_json:
            say_json(described([entry])[0])
        else:
            say(entry.id)

    with_app(work, tolerant=True)


@stm.command()
def search(
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="Words that the note contains.")
    ] = None,
    note_id: Annotated[str | None, typer.Option("--id")] = None,
    date: Annotated[str | None, typer.Option(help="The day it was made: YYYY-MM-DD, UTC.")] = None,
    as_json: Json = False,
) -> None:
    """Find notes. Those that are found count as looked at."""
    from upwell.tools.notes import NOTHING_FOUND, described

    async def work(app: "App") -> None:
        found = app.notes.search(query=query, id=note_id, date=date)
        _tell(app, "" if found else NOTHING_FOUND)
        if as_json:
            say_json(described(found))
        else:
            table(("id", "created_at", "content"), described(found), "Nothing found.")

    with_app(work, tolerant=True)


@stm.command()
def delete(note_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Delete a note for good."""
    from upwell.tools.notes import DELETED

    async def work(app: "App") -> None:
        if not app.notes.delete(note_id):
            raise StoreError(f"no note {note_id!r}", hint="`upwell stm search` shows ids")
        _tell(app, DELETED)
        say(note_id)

    with_app(work, tolerant=True)


@stm.command()
def clear() -> None:
    """Put aside what nobody has looked at for 35 days. Runs by itself once a day."""

    async def work(app: "App") -> None:
        gone = app.notes.clear()
        _tell(app, "")
        days = app.notes.options.retention_days
        aside = f"; for 30 days in {app.notes.trash}" if gone else ""
        say(f"cleared {counted(gone, 'note')} not looked at for {days} days{aside}")

    with_app(work, tolerant=True)


def _tell(app: "App", status: str) -> None:
    """What people want to know beside the data."""
    from upwell.tools.notes import moved

    if report := moved(app.notes):
        note(f"upwell: {report}")
    if status and app.config.shows_status():
        note(status)
