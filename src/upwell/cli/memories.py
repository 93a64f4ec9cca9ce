"""The commands `remember`, `recall` (also of past sessions), `forget`, `restore` and `context`."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec.structs import replace

from upwell.cli.command import Argument, Option
from upwell.cli.output import (
    Everywhere,
    Json,
    note,
    note_masked,
    progress,
    say,
    say_json,
    seconds_of,
    table,
)
from upwell.cli.session import folder, with_memory, with_store
from upwell.ground.errors import StoreError, UsageError
from upwell.ground.names import SESSION_LOCATOR
from upwell.ground.names import memory_id as id_in
from upwell.ground.project import project_named, project_of, repository_of
from upwell.ground.text.words import counted, iso
from upwell.ground.types.cue import Cue, Door, Surfacing
from upwell.ground.types.memory import Hit, Memory, Provenance, Scope, Trust

if TYPE_CHECKING:
    from upwell.app import MemoryApp, StoreApp
    from upwell.memory.base import Added
    from upwell.memory.meaning import Progress
    from upwell.memory.topics import Topic
    from upwell.sessions.answer import Answer
    from upwell.sessions.index import SessionScope

MAX_SESSIONS = 5
PastSessions = Annotated[
    bool,
    Option(
        "--sessions",
        help="Search past sessions for a question or an error, or print the turn at a locator.",
    ),
]
FileOption = Annotated[
    str | None,
    Option("--file", metavar="PATH", help="With --sessions: only those that changed this file."),
]
ProjectOption = Annotated[
    Path | None,
    Option("--project", metavar="DIR", help="With --sessions: only in this project."),
]
HostOption = Annotated[str | None, Option("--host", help="With --sessions: only of this agent.")]
SinceOption = Annotated[
    str | None,
    Option("--since", help="With --sessions: only within this time, for example 30d."),
]

MAX_FOUND, MAX_LISTED = 10, 100


def remember(
    text: Annotated[list[str], Argument(metavar="TEXT", help="The memory. `-` reads stdin.")],
    namespace: Annotated[str, Option(help="decisions, patterns, learnings …")] = "context",
    tag: Annotated[list[str] | None, Option(help="A tag; repeatable.")] = None,
    path: Annotated[
        list[str] | None, Option(help="A file that the memory is about; repeatable.")
    ] = None,
    pin: Annotated[
        bool, Option("--pin", help="Make it a standing rule, given at every session start.")
    ] = False,
    supersedes: Annotated[
        str | None, Option(metavar="ID", help="The memory that this one replaces.")
    ] = None,
    ttl: Annotated[str | None, Option(help="Expire after this time, for example 30d.")] = None,
    share: Annotated[
        bool, Option("--share", help="Share it with the team of `store.url`.")
    ] = False,
    everywhere: Everywhere = False,
    as_json: Json = False,
) -> None:
    """Store a memory and print its id."""
    from upwell.memory.team.sharing import shared_namespace

    content = sys.stdin.read() if text == ["-"] else " ".join(text)
    memory = Memory(
        text=content,
        namespace=shared_namespace(namespace) if share else namespace,
        tags=tuple(tag or ()),
        paths=tuple(path or ()),
        project=None if everywhere else repository_of(os.getcwd()),
        provenance=Provenance(door="cli"),
        pinned=pin,
        supersedes=id_in(supersedes) if supersedes else None,
        expires_at=time.time() + seconds_of(ttl) if ttl else None,
    )
    added, identical_ids = with_store(
        lambda app: _added(app, memory, share=share, everywhere=everywhere)
    )
    note_masked(added.redacted)
    plain = [name for name in memory.paths if memory.project and not set(name) & set("*?[")]
    for name in plain:
        if not any((Path(place) / name).exists() for place in (memory.project or "", Path.cwd())):
            note(
                f"upwell: there is no {name} in {memory.project}; the memory is stored, and it "
                "surfaces with that file once the file exists"
            )
    for other in added.duplicates:
        if other != memory.supersedes:
            likeness = "has the same text" if other in identical_ids else "says nearly the same"
            note(
                f"upwell: memory {other} {likeness}; both are stored: "
                f"`upwell forget {added.id}` or `upwell forget {other}` removes one"
            )
    if as_json:
        say_json({"id": added.id, "redacted": added.redacted, "duplicates": added.duplicates})
    else:
        say(added.id)


async def _as_rule(app: "StoreApp", memory: Memory, *, everywhere: bool) -> Memory:
    """If the memory replaces one of the user's standing rules, make it a standing rule too. It then
    keeps the old rule's triggers and tags (a tag marks a guard or a paused rule) and, unless
    `everywhere` is set, its project."""
    old = await app.memory.get(memory.supersedes) if memory.supersedes else None
    if memory.pinned or old is None or not old.pinned or old.trust is not Trust.USER:
        return memory
    note(f"upwell: memory {old.id} is a standing rule, so its replacement also becomes one")
    return replace(
        memory,
        pinned=True,
        triggers=old.triggers,
        tags=tuple(dict.fromkeys((*old.tags, *memory.tags))),
        project=None if everywhere else old.project,
    )


async def _added(
    app: "StoreApp", memory: Memory, *, share: bool, everywhere: bool
) -> "tuple[Added, set[str]]":
    """Store the memory. Also returns the ids of older memories with the same text."""
    from upwell.ground.project import address_of
    from upwell.memory.team.sharing import is_teams

    if share and not app.config.store.url:
        raise UsageError(
            "there is no team to share with", hint="run `upwell team join URL`, or set store.url"
        )
    if share and memory.project is not None and address_of(memory.project) is None:
        raise UsageError(
            f"{memory.project} has no remote address, so other machines cannot identify it",
            hint="add a git remote named origin, or leave out --share",
        )
    memory = await _as_rule(app, memory, everywhere=everywhere)
    added = await app.memory.add(memory)
    if is_teams(memory.namespace):
        from upwell.app.local_copy import send_now

        if reason := await send_now(app.config, app.memory.store):
            note(f"upwell: the memory will be sent once the team's store accepts it: {reason}")
    stored = await app.memory.get(added.id)
    others = [await app.memory.get(other) for other in added.duplicates]
    return added, {other.id for other in others if other and stored and other.text == stored.text}


def recall(
    words: Annotated[
        list[str] | None,
        Argument(metavar="QUERY", help="What to look for; omit it to list everything."),
    ] = None,
    limit: Annotated[
        int | None,
        Option(
            "-k", min=1, max=1_000_000, help="At most N. Default: 10 for a query, 100 for a list."
        ),
    ] = None,
    namespace: Annotated[str | None, Option(help="Only in this namespace.")] = None,
    pinned: Annotated[bool, Option("--pinned", help="List the standing rules.")] = False,
    trash: Annotated[bool, Option("--trash", help="List the trash.")] = False,
    topics: Annotated[
        bool, Option("--topics", help="List the topics: tags, namespaces and shared words.")
    ] = False,
    past: PastSessions = False,
    file: FileOption = None,
    project: ProjectOption = None,
    host: HostOption = None,
    since: SinceOption = None,
    as_json: Json = False,
) -> None:
    """Search or list the memories of all projects. Lists are newest first. With --sessions, search
    the past sessions of every agent on this machine."""
    query = " ".join(words) if words else None
    if past:
        if namespace or pinned or trash:
            raise UsageError("--sessions searches sessions, which have no namespace and no trash")
        from upwell.sessions.index import SessionScope

        scope = SessionScope(
            project=project_of(str(project)) if project else None,
            host=host,
            since=time.time() - seconds_of(since) if since else 0.0,
            here=project_of(folder()),
        )
        recall_sessions(query, file, scope, limit or MAX_SESSIONS, as_json=as_json)
        return
    if file or project or host or since:
        raise UsageError("--file, --project, --host and --since need --sessions")
    if (query is not None) + pinned + trash + topics > 1:
        raise UsageError(
            "a query, --pinned, --trash and --topics cannot be combined", hint="give only one"
        )
    if topics:
        _topics(as_json)
        return
    names = (namespace,) if namespace else ()

    async def listed(app: "StoreApp") -> list[Hit]:
        return await _listed(app, pinned, trash, names, limit or MAX_LISTED)

    async def found(app: "MemoryApp") -> list[Hit]:
        hits = await _recall(app, query or "", limit or MAX_FOUND, names, show)
        if not hits and not as_json and await app.memory.store.pinned(Scope(), limit=1):
            note("upwell: standing rules are not searched; `upwell rules` lists them")
        return hits

    with progress("searching" if query else "listing") as show:
        hits = with_store(listed) if query is None else with_memory(found)
    if as_json:
        from upwell.tools.recall import entry

        say_json({"hits": [entry(hit) for hit in hits]})
    else:
        columns = ("id", "score", "namespace", "date", "where", "text")
        table(columns, [_row(hit) for hit in hits], "No memory found.")


async def _listed(
    app: "StoreApp", pinned: bool, trash: bool, namespaces: tuple[str, ...], limit: int
) -> list[Hit]:
    from upwell.memory.ranking.scoring import SUPERSEDED

    if trash:
        memories = await app.memory.store.trash(limit=limit)
    elif pinned:
        memories = await app.memory.store.pinned(Scope(namespaces=namespaces), limit=limit)
    else:
        memories = await app.memory.list(namespaces=namespaces, limit=limit)
    old = await app.memory.store.superseded([memory.id for memory in memories])
    return [
        Hit(memory=memory, score=0.0, signals={SUPERSEDED: 1.0} if memory.id in old else {})
        for memory in memories
    ]


async def _recall(
    app: "MemoryApp", query: str, limit: int, names: tuple[str, ...], show: "Progress"
) -> list[Hit]:
    """Search the memories, after reading new documents. Unlike in an agent's search, the reading
    has no time limit."""
    try:
        await app.documents.refresh(progress=show)
    except StoreError as error:
        note(f"upwell: the document index is out of date: {error}")
    await app.embeddings.load()
    result = await app.memory.find(query, limit=limit, namespaces=names)
    for source in result.missing:
        note(f"upwell: could not search {source}")
    await app.viewed([hit.memory for hit in result.hits])
    return list(result.hits)


def _row(hit: Hit) -> dict[str, str]:
    from upwell.surface.render import citation

    memory = hit.memory
    marks = [
        mark
        for mark, is_marked in (
            ("pinned", memory.pinned),
            ("superseded", hit.signals.get("superseded")),
            ("expires", memory.expires_at),
        )
        if is_marked
    ]
    return {
        "id": memory.id,
        "score": f"{hit.score:.2f}" if hit.score else "",
        "namespace": memory.namespace,
        "date": (iso(memory.created_at) or "")[:10],
        "where": citation(memory) if memory.source else os.path.basename(memory.project or ""),
        "text": " ".join([*(f"({mark})" for mark in marks), memory.text]),
    }


def _topics(as_json: bool) -> None:
    from upwell.tools.resources import described

    async def work(app: "MemoryApp") -> "list[Topic]":
        await app.documents.refresh()
        return await app.topics.all()

    found = with_memory(work)
    if as_json:
        say_json({"count": len(found), "topics": [described(topic) for topic in found]})
        return
    rows = [
        {"topic": t.name, "memories": t.memory_count, "namespaces": ", ".join(t.namespaces)}
        for t in found
    ]
    table(("topic", "memories", "namespaces"), rows, "No memories yet.")


def forget(
    memory_id: Annotated[str | None, Argument(metavar="ID")] = None,
    now: Annotated[
        bool, Option("--now", help="Delete for good, from the trash and every index.")
    ] = False,
    project: Annotated[
        Path | None,
        Option(
            "--project",
            metavar="DIR",
            help="Forget all memories, notes and proposals of this project.",
        ),
    ] = None,
) -> None:
    """Move a memory to the trash for 30 days, or with --project all memories of a project."""
    if (memory_id is None) == (project is None):
        raise UsageError("give the id of a memory, or --project DIR")
    if project is not None:
        _forget_project(project, now)
        return
    memory_id = id_in(memory_id or "")
    # Only the whole memory knows the ids of documents and notes, which it refuses to forget.
    if not (
        with_store(lambda app: app.forget(memory_id, for_good=now))
        or with_memory(lambda app: app.forget(memory_id, for_good=now))
    ):
        raise StoreError(
            f"no memory {memory_id!r}",
            hint="`upwell recall` lists ids, and `upwell recall --trash` those in the trash",
        )
    if now:
        say(f"deleted {memory_id} for good; older daily backups expire within seven days")
    else:
        say(f"forgot {memory_id}; `upwell restore {memory_id}` restores it")


def _forget_project(folder: Path, now: bool) -> None:
    project = project_named(folder)
    memories, notes = with_memory(lambda app: app.forget_project(project, for_good=now))
    what = counted(memories, "memory", "memories")
    if notes:
        what += f" and {counted(notes, 'note')}"
    if now:
        say(f"deleted {what} of {project} for good; daily backups expire within seven days")
    else:
        say(f"forgot {what} of {project}; `upwell recall --trash` lists the memories")


def restore(memory_id: Annotated[str, Argument(metavar="ID")]) -> None:
    """Restore a memory from the trash."""
    memory_id = id_in(memory_id)
    if not with_store(lambda app: app.memory.restore(memory_id)):
        raise StoreError(
            f"no memory {memory_id!r} in the trash",
            hint="the trash keeps memories for 30 days; `upwell recall --trash` lists them",
        )
    say(f"restored {memory_id}")


def context(
    words: Annotated[
        list[str] | None,
        Argument(
            metavar="MESSAGE",
            help="The user's message. `-` reads stdin. Omit it for --door session.",
        ),
    ] = None,
    door: Annotated[str, Option(help="ask, prompt or session.")] = "ask",
    form: Annotated[str, Option("--format", help="digest or json.")] = "digest",
    session: Annotated[str, Option(help="Session to record this in; omit to preview.")] = "",
    as_json: Json = False,
) -> None:
    """Show what upwell would say to a message. If it would stay silent, show the reason instead."""
    if door not in (Door.ASK, Door.PROMPT, Door.SESSION):
        raise UsageError(f"--door {door!r} is not a door", hint="ask, prompt or session")
    if form not in ("digest", "json"):
        raise UsageError(f"--format {form!r} is not a format", hint="digest or json")
    message = " ".join(words) if words else None
    if message is None and door != Door.SESSION:
        raise UsageError("context needs a message", hint="only --door session works without one")
    text = sys.stdin.read() if message == "-" else message
    cue = Cue(door=Door(door), text=text or "", session=session, cwd=os.getcwd())
    with_memory(lambda app: _show_context(app, cue, as_json or form == "json"))


async def _show_context(app: "MemoryApp", cue: Cue, as_json: bool) -> None:
    from upwell.app.reporting import is_memory_empty
    from upwell.surface.explain import account_of
    from upwell.surface.options import READ_COMMAND
    from upwell.surface.render import EMPTY_DIGEST, by_command
    from upwell.tools.recall import SWITCHED_OFF, described

    if cue.door == Door.ASK and not app.config.memory_context.enabled:
        say(SWITCHED_OFF)
        return
    if app.pause.holds(cue.session):
        note("upwell: upwell is off: nothing is surfaced until `upwell on`")
    outcome = await app.surfacer.surface(cue)
    for source in outcome.missing:
        note(f"upwell: could not search {source}")
    if as_json:
        say_json(described(outcome))
        return
    if isinstance(outcome, Surfacing):
        say(by_command(outcome.text, READ_COMMAND))
    elif cue.door != Door.SESSION:
        say(EMPTY_DIGEST)
    unasked = None
    if cue.door == Door.ASK and not app.config.surface.judge:  # the judge costs money
        unasked = await app.surfacer.preview(replace(cue, door=Door.PROMPT))
    is_empty = not isinstance(outcome, Surfacing) and await is_memory_empty(app)
    min_score = app.learning.min_score(cue)
    for line in account_of(outcome, min_score, cue.door, unasked=unasked, is_empty=is_empty):
        note(line)


def recall_sessions(
    question: str | None, file: str | None, scope: "SessionScope", limit: int, *, as_json: bool
) -> None:
    """Search past sessions by a question or by a file, or read one turn by its locator."""
    from upwell.sessions.answer import (
        answers_to,
        changes_of,
        described,
        lines_of,
        page_of,
        turn_at,
    )

    if (question is None) == (file is None):
        raise UsageError(
            "--sessions needs a question, or --file PATH", hint="upwell recall --sessions QUESTION"
        )
    with progress("reading sessions") as show:

        async def work(app: "MemoryApp") -> "list[Answer]":
            past, failure = app.past_sessions(), ""
            try:
                await past.refresh(show)
            except StoreError as error:
                failure = str(error)
            environment = app.config.environment
            if question is None:
                path, here = os.path.expanduser(file or ""), folder() or "/"
                answers = await changes_of(past, path, here, scope, limit, environment)
            elif question.startswith(SESSION_LOCATOR):
                answers = [await turn_at(past, question, environment)]
            else:
                answers = await answers_to(past, question, scope, limit, environment)
            if failure:
                note(f"upwell: the index of sessions is out of date: {failure}")
            return answers

        answers = with_memory(work)
    if as_json:
        say_json({"sessions": [described(answer) for answer in answers]})
    elif question is not None and question.startswith(SESSION_LOCATOR):
        say(page_of(answers[0]))
    elif answers:
        say("\n\n".join("\n".join(lines_of(answer, question or "")) for answer in answers))
    else:
        note("No past session found.")


def index_sessions() -> None:
    """Bring the index of past sessions up to date, and print its size."""
    with progress("indexing sessions") as show:

        async def work(app: "MemoryApp") -> tuple[int, int]:
            await app.past_sessions().refresh(show)
            return await app.past_sessions().counts()

        sessions, turns = with_memory(work)
    say(f"indexed {counted(sessions, 'session')} with {counted(turns, 'turn')} for `recall`")
