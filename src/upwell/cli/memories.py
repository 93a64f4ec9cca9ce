"""remember · recall · forget · restore · context"""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from upwell.cli.output import note, say, say_json, table
from upwell.cli.progress import progress
from upwell.cli.session import with_app
from upwell.ground.errors import StoreError, UsageError
from upwell.ground.project import repository_of
from upwell.ground.types import Cue, Door, Memory, Provenance, Skip, Surfacing

if TYPE_CHECKING:
    from upwell.app import App
    from upwell.ground.types import Hit
    from upwell.memory.documents import Progress

URI = "upwell://memory/"
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    for verb in (remember, recall, forget, restore, context):
        app.command()(verb)


def remember(
    text: Annotated[str, typer.Argument(help="What to remember. `-` reads stdin.")],
    namespace: Annotated[str, typer.Option(help="decisions, patterns, learnings …")] = "context",
    tag: Annotated[list[str] | None, typer.Option(help="A tag; may be repeated.")] = None,
    path: Annotated[
        list[str] | None, typer.Option(help="A file it is about; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Keep a memory. Prints its id."""
    said = typer.get_text_stream("stdin").read() if text == "-" else text
    memory = Memory(
        text=said,
        namespace=namespace,
        tags=tuple(tag or ()),
        paths=tuple(path or ()),
        project=repository_of(os.getcwd()),
        provenance=Provenance(door="cli"),
    )
    added = with_app(lambda app: app.memory.add(memory))
    for rule in added.redacted:
        note(f"upwell: a secret was masked before it was kept ({rule})")
    for other in added.duplicates:
        note(
            f"upwell: memory {other} says the same or nearly the same; both are kept, "
            f"`upwell forget {added.id}` undoes this one"
        )
    if as_json:
        say_json({"id": added.id, "redacted": added.redacted, "duplicates": added.duplicates})
    else:
        say(added.id)


def recall(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    limit: Annotated[int, typer.Option("-k", min=1, max=1000, help="How many at most.")] = 10,
    namespace: Annotated[str | None, typer.Option(help="Only in this namespace.")] = None,
    as_json: Json = False,
) -> None:
    """Search the memory of every project."""
    from upwell.surface.render import citation
    from upwell.tools.recall import entry

    names = (namespace,) if namespace else ()
    with progress("reading documents") as show:
        hits = with_app(lambda app: _recall(app, query, limit, names, show))
    if as_json:
        say_json({"hits": [entry(hit) for hit in hits]})
        return
    rows = [
        {
            "id": hit.memory.id,
            "score": f"{hit.score:.2f}",
            "namespace": hit.memory.namespace,
            "where": citation(hit.memory) if hit.memory.source else "",
            "text": hit.memory.text,
        }
        for hit in hits
    ]
    table(("id", "score", "namespace", "where", "text"), rows, "Nothing found.")


async def _recall(
    app: "App", query: str, limit: int, names: tuple[str, ...], show: "Progress"
) -> "list[Hit]":
    """A person waits for documents that are new, however long it takes."""
    try:
        await app.documents.refresh(progress=show)
    except StoreError as error:
        note(f"upwell: documents are left out: {error}")
    return await app.memory.search(query, limit=limit, namespaces=names)


def forget(memory_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Put a memory in the trash, where it stays for 30 days."""
    memory_id = memory_id.removeprefix(URI)
    if not with_app(lambda app: app.memory.delete(memory_id)):
        raise StoreError(f"no memory {memory_id!r}", hint="`upwell recall` shows ids")
    say(f"forgot {memory_id}; `upwell restore {memory_id}` brings it back")


def restore(memory_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Bring a memory back from the trash."""
    memory_id = memory_id.removeprefix(URI)
    if not with_app(lambda app: app.memory.restore(memory_id)):
        raise StoreError(f"no memory {memory_id!r} in the trash", hint="it is kept for 30 days")
    say(f"restored {memory_id}")


def context(
    message: Annotated[str, typer.Argument(help="What the user said. `-` reads stdin.")],
    door: Annotated[str, typer.Option(help="ask or prompt.")] = "ask",
    form: Annotated[str, typer.Option("--format", help="digest or json.")] = "digest",
    session: Annotated[str, typer.Option(help="Tell this session; without one, only look.")] = "",
    as_json: Json = False,
) -> None:
    """Show what would be said to a message, or why nothing would."""
    if door not in (Door.ASK, Door.PROMPT):
        raise UsageError(f"--door {door!r} is not a door", hint="ask or prompt")
    if form not in ("digest", "json"):
        raise UsageError(f"--format {form!r} is not a format", hint="digest or json")
    said = typer.get_text_stream("stdin").read() if message == "-" else message
    cue = Cue(door=Door(door), text=said, session=session, cwd=os.getcwd())
    with_app(lambda app: _show_context(app, cue, as_json or form == "json"))


async def _show_context(app: "App", cue: Cue, as_json: bool) -> None:
    from upwell.surface.render import EMPTY_DIGEST
    from upwell.tools.recall import NOTHING_IS_SEARCHED, described

    if cue.door == Door.ASK and not app.config.memory_context.enabled:
        say(NOTHING_IS_SEARCHED)
        return
    outcome = await app.surfacer.surface(cue)
    if as_json:
        say_json(described(outcome))
    elif isinstance(outcome, Surfacing):
        say(outcome.text)
    else:
        say(EMPTY_DIGEST)
        note(_why(outcome))


def _why(skip: Skip) -> str:
    detail = f": {skip.detail}" if skip.detail else ""
    return f"upwell: silent, {skip.reason}{detail}"
