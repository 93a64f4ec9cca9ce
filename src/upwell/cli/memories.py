"""remember · recall · forget · restore · topics · context"""

import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

from upwell.cli.output import Json, note, say, say_json, table
from upwell.cli.progress import progress
from upwell.cli.session import with_app
from upwell.cli.times import seconds_of
from upwell.ground.errors import StoreError, UsageError
from upwell.ground.names import memory_id as id_in
from upwell.ground.project import repository_of
from upwell.ground.text.times import iso
from upwell.ground.types import Cue, Door, Hit, Memory, Provenance, Scope, Surfacing

if TYPE_CHECKING:
    from upwell.app import App
    from upwell.memory.base import Added
    from upwell.memory.documents import Progress
    from upwell.memory.topics import Topic

MOST_FOUND, MOST_LISTED = 10, 100


def register(app: typer.Typer) -> None:
    for verb in (remember, recall, forget, restore, topics, context):
        app.command()(verb)


def remember(
    text: Annotated[
        list[str], typer.Argument(metavar="TEXT", help="What to remember. `-` reads stdin.")
    ],
    namespace: Annotated[str, typer.Option(help="decisions, patterns, learnings …")] = "context",
    tag: Annotated[list[str] | None, typer.Option(help="A tag; may be repeated.")] = None,
    path: Annotated[
        list[str] | None, typer.Option(help="A file it is about; may be repeated.")
    ] = None,
    pin: Annotated[
        bool, typer.Option("--pin", help="A standing rule: told whenever a session begins.")
    ] = False,
    supersedes: Annotated[
        str | None, typer.Option(metavar="ID", help="The older memory that this one replaces.")
    ] = None,
    ttl: Annotated[str | None, typer.Option(help="Forget it after this time, like 30d.")] = None,
    as_json: Json = False,
) -> None:
    """Keep a memory. Prints its id."""
    said = typer.get_text_stream("stdin").read() if text == ["-"] else " ".join(text)
    memory = Memory(
        text=said,
        namespace=namespace,
        tags=tuple(tag or ()),
        paths=tuple(path or ()),
        project=repository_of(os.getcwd()),
        provenance=Provenance(door="cli"),
        pinned=pin,
        supersedes=id_in(supersedes) if supersedes else None,
        expires_at=time.time() + seconds_of(ttl) if ttl else None,
    )
    added, same = with_app(lambda app: _kept(app, memory))
    for rule in added.redacted:
        note(f"upwell: a secret was masked before it was kept ({rule})")
    for other in added.duplicates:
        if other != memory.supersedes:
            says = "holds this very text already" if other in same else "says nearly the same"
            note(
                f"upwell: memory {other} {says}; both are kept: "
                f"`upwell forget {added.id}` or `upwell forget {other}` removes one"
            )
    if as_json:
        say_json({"id": added.id, "redacted": added.redacted, "duplicates": added.duplicates})
    else:
        say(added.id)


async def _kept(app: "App", memory: Memory) -> "tuple[Added, set[str]]":
    """What became of the memory, and the ids of those that hold the same text."""
    added = await app.memory.add(memory)
    kept = await app.memory.get(added.id)
    others = [await app.memory.get(other) for other in added.duplicates]
    return added, {one.id for one in others if one and kept and one.text == kept.text}


def recall(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUERY", help="What to look for; without it everything is listed."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("-k", min=1, max=1_000_000, help="How many at most: 10, listed 100."),
    ] = None,
    namespace: Annotated[str | None, typer.Option(help="Only in this namespace.")] = None,
    pinned: Annotated[bool, typer.Option("--pinned", help="List the standing rules.")] = False,
    trash: Annotated[bool, typer.Option("--trash", help="List what was forgotten.")] = False,
    as_json: Json = False,
) -> None:
    """Search the memory of every project, or list it, newest first."""
    from upwell.tools.recall import entry

    query = " ".join(words) if words else None
    if (query is not None) + pinned + trash > 1:
        raise UsageError(
            "a query, --pinned and --trash exclude each other", hint="give one of them"
        )
    names = (namespace,) if namespace else ()

    async def work(app: "App") -> list[Hit]:
        if query is None:
            return await _listed(app, pinned, trash, names, limit or MOST_LISTED)
        hits = await _recall(app, query, limit or MOST_FOUND, names, show)
        if not hits and not as_json and await app.memory.store.pinned(Scope(), limit=1):
            note("upwell: standing rules are not searched: `upwell recall --pinned` lists them")
        return hits

    with progress("reading documents") as show:
        hits = with_app(work)
    if as_json:
        say_json({"hits": [entry(hit) for hit in hits]})
    else:
        columns = ("id", "score", "namespace", "date", "where", "text")
        table(columns, [_row(hit) for hit in hits], "Nothing found.")


async def _listed(
    app: "App", pinned: bool, trash: bool, namespaces: tuple[str, ...], limit: int
) -> list[Hit]:
    """Memories as hits that nobody looked for: without a score, the superseded marked."""
    from upwell.memory.successors import SUPERSEDED

    if trash:
        found = await app.memory.store.trash(limit=limit)
    elif pinned:
        found = await app.memory.store.pinned(Scope(namespaces=namespaces), limit=limit)
    else:
        found = await app.memory.list(namespaces=namespaces, limit=limit)
    old = await app.memory.store.superseded([memory.id for memory in found])
    return [
        Hit(memory=memory, score=0.0, signals={SUPERSEDED: 1.0} if memory.id in old else {})
        for memory in found
    ]


async def _recall(
    app: "App", query: str, limit: int, names: tuple[str, ...], show: "Progress"
) -> list[Hit]:
    """A person waits for documents that are new, however long it takes."""
    try:
        await app.documents.refresh(progress=show)
    except StoreError as error:
        note(f"upwell: documents are not up to date: {error}")
    await app.embeddings.load()
    hits = await app.memory.search(query, limit=limit, namespaces=names)
    for place in app.recalls.missing:
        note(f"upwell: searched without {place}")
    return hits


def _row(hit: Hit) -> dict[str, str]:
    from upwell.surface.render import citation

    memory = hit.memory
    marks = [
        mark
        for mark, holds in (
            ("pinned", memory.pinned),
            ("superseded", hit.signals.get("superseded")),
            ("expires", memory.expires_at),
        )
        if holds
    ]
    return {
        "id": memory.id,
        "score": f"{hit.score:.2f}" if hit.score else "",
        "namespace": memory.namespace,
        "date": (iso(memory.created_at) or "")[:10],
        "where": citation(memory) if memory.source else os.path.basename(memory.project or ""),
        "text": " ".join([*(f"({mark})" for mark in marks), memory.text]),
    }


def forget(
    memory_id: Annotated[str, typer.Argument(metavar="ID")],
    now: Annotated[
        bool, typer.Option("--now", help="For good: out of the trash and every index, too.")
    ] = False,
) -> None:
    """Put a memory in the trash, where it stays for 30 days."""
    memory_id = id_in(memory_id)
    if not with_app(lambda app: app.memory.delete(memory_id, for_good=now)):
        raise StoreError(f"no memory {memory_id!r}", hint="`upwell recall` shows ids")
    if now:
        say(f"forgot {memory_id} for good; daily backups of before go within seven days")
    else:
        say(f"forgot {memory_id}; `upwell restore {memory_id}` brings it back")


def restore(memory_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Bring a memory back from the trash."""
    memory_id = id_in(memory_id)
    if not with_app(lambda app: app.memory.restore(memory_id)):
        raise StoreError(f"no memory {memory_id!r} in the trash", hint="it is kept for 30 days")
    say(f"restored {memory_id}")


def topics(as_json: Json = False) -> None:
    """Show what the memories are about. Tags, namespaces, and words that several share."""
    from upwell.tools.resources import described

    async def work(app: "App") -> "list[Topic]":
        await app.documents.refresh()
        return await app.topics.all()

    found = with_app(work)
    if as_json:
        say_json({"count": len(found), "topics": [described(topic) for topic in found]})
        return
    rows = [
        {"topic": t.name, "memories": t.memory_count, "namespaces": ", ".join(t.namespaces)}
        for t in found
    ]
    table(("topic", "memories", "namespaces"), rows, "Nothing is remembered yet.")


def context(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MESSAGE",
            help="What the user said, `-` reads stdin; with --door session, nothing.",
        ),
    ] = None,
    door: Annotated[str, typer.Option(help="ask, prompt or session.")] = "ask",
    form: Annotated[str, typer.Option("--format", help="digest or json.")] = "digest",
    session: Annotated[str, typer.Option(help="Tell this session; without one, only look.")] = "",
    as_json: Json = False,
) -> None:
    """Show what would be said to a message, or why nothing would."""
    if door not in (Door.ASK, Door.PROMPT, Door.SESSION):
        raise UsageError(f"--door {door!r} is not a door", hint="ask, prompt or session")
    if form not in ("digest", "json"):
        raise UsageError(f"--format {form!r} is not a format", hint="digest or json")
    message = " ".join(words) if words else None
    if message is None and door != Door.SESSION:
        raise UsageError("context needs a message", hint="only --door session has none")
    said = typer.get_text_stream("stdin").read() if message == "-" else message
    cue = Cue(door=Door(door), text=said or "", session=session, cwd=os.getcwd())
    with_app(lambda app: _show_context(app, cue, as_json or form == "json"))


async def _show_context(app: "App", cue: Cue, as_json: bool) -> None:
    from upwell.surface.account import account_of
    from upwell.surface.render import EMPTY_DIGEST
    from upwell.tools.recall import NOTHING_IS_SEARCHED, described

    if cue.door == Door.ASK and not app.config.memory_context.enabled:
        say(NOTHING_IS_SEARCHED)
        return
    if app.pause.holds(cue.session):
        note("upwell: it is off: agents are told nothing unasked until `upwell on`")
    outcome = await app.surfacer.surface(cue)
    for place in outcome.missing:
        note(f"upwell: searched without {place}")
    if as_json:
        say_json(described(outcome))
        return
    if isinstance(outcome, Surfacing):
        say(outcome.text)
    elif cue.door != Door.SESSION:
        say(EMPTY_DIGEST)
    for line in account_of(outcome, app.surfacer.threshold(cue), cue.door):
        note(line)
