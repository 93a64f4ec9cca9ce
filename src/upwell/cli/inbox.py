"""The `inbox` commands: proposed memories and memories to be removed, and the user's decisions
about them."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec.structs import asdict

from upwell.cli.command import Argument, Group, Option
from upwell.cli.output import Json, note, note_masked, say, say_json, table
from upwell.cli.session import read_config, with_memory, with_store
from upwell.cli.triage import Card, TriageAnswer, TriageDecision, decisions, edited, has_terminal
from upwell.ground.errors import UsageError
from upwell.ground.project import project_of, repository_of
from upwell.ground.text.words import counted, iso
from upwell.ground.types.memory import IMPORT

if TYPE_CHECKING:
    from upwell.app import StoreApp
    from upwell.app.memory import MemoryApp
    from upwell.app.review import RemovalOffer, RemovalReason, Review
    from upwell.capture.inbox import Inbox, Proposal

MAX_FILES = 8
_HABIT = "a habit; `upwell rules keep {id}` makes it a standing rule"
Ids = Annotated[list[str] | None, Argument(metavar="ID", help="Ids of proposals.")]
All = Annotated[bool, Option("--all", help="All proposals of this project.")]
Project = Annotated[
    str | None,
    Option("--project", metavar="PATH", help="Only the project at PATH."),
]
Every = Annotated[bool, Option("--every-project", help="Every project.")]
KindOf = Annotated[str | None, Option("--kind", help="Only this kind: commit, rule or command.")]


def waiting(
    project: Project = None,
    every: Every = False,
    kind: KindOf = None,
    as_json: Json = False,
) -> None:
    """Decide on the proposals of this project, one by one. Without a terminal, or with --json, list
    the proposals of every project."""
    box = open_inbox()
    if has_terminal() and not as_json:
        _decide(box, _asked_about(box, project, every), kind)
        return
    proposals = _selected(box, _named(project), kind)
    if as_json:
        say_json({"proposals": [{"id": item.id, **asdict(item)} for item in proposals]})
        return
    rows = []
    for item in proposals:
        why = f"{item.why}, in {count} sessions" if (count := item.occurrences) > 1 else item.why
        if item.is_habit:
            why += f": {_HABIT.format(id=item.id)}"
        rows.append({"id": item.id, "from": item.source, "why": why, "text": item.text})
    table(("id", "from", "why", "text"), rows, "The inbox is empty.")
    say_displaced(sum(box.displaced().values()))


inbox = Group("Proposed memories. No agent sees them until you accept them.", waiting)


@inbox.command("accept")
def accept(
    ids: Ids = None,
    everything: All = False,
    project: Project = None,
    every: Every = False,
    kind: KindOf = None,
) -> None:
    """Store proposals as memories."""
    box = open_inbox()
    chosen = _chosen(box, ids, everything, owner_of(project, every), kind)
    stored = with_store(lambda app: _store(app, box, chosen)) if chosen else 0
    say(f"{counted(stored, 'memory', 'memories')} stored")


@inbox.command("refuse")
def refuse(
    ids: Ids = None,
    everything: All = False,
    project: Project = None,
    every: Every = False,
    kind: KindOf = None,
    never: Annotated[
        bool,
        Option(
            "--never",
            help="Also refuse duplicates: the same words in any project, or another conclusion for "
            "the same situation.",
        ),
    ] = False,
) -> None:
    """Drop proposals. They are not proposed again."""
    box = open_inbox()
    chosen = _chosen(box, ids, everything, owner_of(project, every), kind)
    dropped = box.ban(chosen) if never else len(box.take([item.id for item in chosen]))
    say(f"{counted(dropped, 'proposal')} dropped")


def open_inbox() -> "Inbox":
    """The inbox in upwell's home."""
    from upwell.capture.inbox import inbox_at

    return inbox_at(read_config().home.prepare().inbox_file)


def say_displaced(count: int) -> None:
    """Print how many open proposals were dropped to make room for later ones."""
    from upwell.capture.inbox import MAX_WAITING

    if count:
        note(
            f"upwell: {counted(count, 'older proposal')} dropped, because at most {MAX_WAITING} "
            "wait for each project; decide on some, then `upwell learn git` or "
            "`upwell learn sessions --again` proposes the dropped ones again"
        )


def _decide(box: "Inbox", owner: str | None, kind: str | None) -> None:
    proposals = _selected(box, owner, kind)
    if sum(box.displaced().values()):
        say_displaced(box.forget_displaced(owner))
    if proposals:
        with_store(lambda app: _triage(app, box, proposals, names_project=_needs_project(owner)))
    else:
        say("nothing is waiting" + (f" for {owner}" if owner else ""))
    others = len(box.waiting()) - len(_selected(box, owner, None))
    if others:
        note(f"upwell: {counted(others, 'proposal')} of other projects; --every-project shows all")


def _asked_about(box: "Inbox", project: str | None, every: bool) -> str | None:
    """The project whose proposals are shown on a terminal. None (every project) if the current
    folder is outside any repository and has no proposals of its own."""
    owner = owner_of(project, every)
    if project is None and _needs_project(owner) and not _selected(box, owner, None):
        return None
    return owner


def _needs_project(owner: str | None) -> bool:
    return owner is None or repository_of(owner) is None


async def _triage(
    app: "StoreApp", box: "Inbox", proposals: "Sequence[Proposal]", *, names_project: bool
) -> None:
    cards = [
        Card(item, item.kind, item.text, list(_evidence(item, names_project=names_project)))
        for item in proposals
    ]
    for batch in decisions(cards, lambda text: edited(text, app.config.environment)):
        await _apply(app, box, batch)
    say(f"{counted(len(box.chosen([])), 'proposal')} left in the inbox")


async def _apply(
    app: "StoreApp", box: "Inbox", batch: "Sequence[TriageDecision[Proposal]]"
) -> None:
    if acceptances := [each for each in batch if each.answer is TriageAnswer.KEEP]:
        proposals = [decision.item for decision in acceptances]
        await _store(app, box, proposals, [decision.text for decision in acceptances])
    if refusals := [each.item.id for each in batch if each.answer is TriageAnswer.DROP]:
        box.take(refusals)
    if bans := [each.item for each in batch if each.answer is TriageAnswer.NEVER]:
        box.ban(bans)


async def _store(
    app: "StoreApp",
    box: "Inbox",
    proposals: "Sequence[Proposal]",
    texts: Sequence[str] | None = None,
) -> int:
    from upwell.app.review import accept
    from upwell.surface.rules import scope_of

    memories, added = await accept(app, box, proposals, texts)
    scopes = Counter(scope_of(memory).in_words() for memory in memories if memory.pinned)
    for scope, count in scopes.items():
        stored = counted(count, "standing rule")
        note(f"upwell: {stored} stored, for {scope}; `upwell rules` limits or pauses them")
    note_masked(sorted({rule for result in added for rule in result.redacted}))
    return len(added)


def _chosen(
    box: "Inbox", ids: list[str] | None, everything: bool, owner: str | None, kind: str | None
) -> "list[Proposal]":
    if bool(ids) == everything:
        raise UsageError("give proposal ids, or --all", hint="`upwell inbox` lists them")
    if ids:
        return box.chosen(ids)
    chosen = _selected(box, owner, kind)
    others = len(_selected(box, None, kind)) - len(chosen)
    if others:
        left = counted(others, "proposal")
        note(f"upwell: {left} of other projects stay; --every-project includes them")
    return chosen


def _selected(box: "Inbox", owner: str | None, kind: str | None) -> "list[Proposal]":
    from upwell.capture.inbox import of_project

    return of_project(box.waiting(), owner, kind)


def owner_of(project: str | None, every: bool) -> str | None:
    """The selected project, by default that of the working directory; None for every project."""
    if project and every:
        raise UsageError("--project and --every-project cannot be combined", hint="give only one")
    return None if every else _named(project) or project_of(os.getcwd())


def _named(project: str | None) -> str | None:
    return project_of(str(Path(project).resolve())) if project else None


def _evidence(proposal: "Proposal", *, names_project: bool) -> "Sequence[str]":
    from upwell.episodes.triggers import in_words
    from upwell.surface.rules import scope_of

    date = (iso(proposal.at) or "")[:10]
    lines = [" ".join(filter(None, (f"from {proposal.source}", date and f"of {date}")))]
    if proposal.project and names_project:
        lines.append(f"project {proposal.project}")
    if proposal.paths:
        lines.append(f"files {', '.join(proposal.paths[:MAX_FILES])}")
    if proposal.kind == "rule" and proposal.source.startswith(IMPORT):
        lines.append(
            f"for {proposal.project or 'every project'}, {scope_of(proposal.memory()).in_words()}"
        )
        return lines
    if proposal.triggers:
        lines.append(f"surfaces when {in_words(proposal.triggers[0])}")
    if (count := proposal.occurrences) == 1:
        lines.append("found in one past session")
    else:
        helped = "a memory would have helped all but the first"
        lines.append(f"found in {count} past sessions; {helped}")
    if proposal.is_habit:
        lines.append(_HABIT.format(id=proposal.id))
    return lines


@inbox.command("review")
def review(
    project: Project = None,
    every: Every = False,
    reason: Annotated[
        str | None,
        Option(help="Only this reason: contradicted, stale, useless, duplicate or unmatched."),
    ] = None,
    yes: Annotated[
        bool, Option("--yes", "-y", help="With --reason: remove them all without asking.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Offer memories for removal, each with a reason.

    Reasons: a newer memory contradicts it, its files are gone, it was never useful, another memory
    says the same, or it was imported and never needed. Without a terminal, or with --json, the
    memories are only listed. Removed memories stay in the trash for 30 days."""
    only = _reason(reason)
    if yes and only is None:
        raise UsageError("--yes needs --reason", hint="upwell inbox review --reason stale --yes")
    owner = owner_of(project, every)

    async def work(app: "MemoryApp") -> None:
        session = app.review()
        offers = await session.offers(owner, only)
        if yes:
            for offer in offers:
                await session.remove(offer.memory)
            removed = counted(len(offers), "memory", "memories")
            say(
                f"{removed} removed; `upwell recall --trash` lists them, `upwell restore ID` "
                "restores one"
            )
        elif as_json:
            say_json({"offers": [offer.described() for offer in offers]})
        elif has_terminal() and offers:
            await _ask_about(app, session, offers)
        else:
            rows = [offer.described() for offer in offers]
            table(("id", "reason", "detail", "text"), rows, "Nothing to remove.")

    with_memory(work)


async def _ask_about(app: "MemoryApp", session: "Review", offers: "Sequence[RemovalOffer]") -> None:
    from upwell.app.review import reword

    note(
        "upwell: `drop` moves a memory to the trash; `upwell restore ID` brings it back for 30 days"
    )
    cards = [
        Card(offer, offer.reason, offer.memory.text, list(_review_evidence(offer)))
        for offer in offers
    ]
    for batch in decisions(cards, lambda text: edited(text, app.config.environment)):
        for decision in batch:
            offer, memory = decision.item, decision.item.memory
            if decision.answer is TriageAnswer.KEEP:
                if decision.text != memory.text:
                    note_masked((await reword(app, memory, decision.text)).redacted)
                await session.decline(offer)
            elif decision.answer in (TriageAnswer.DROP, TriageAnswer.NEVER):
                await session.remove(memory, duplicates=decision.answer is TriageAnswer.NEVER)


def _review_evidence(offer: "RemovalOffer") -> "Sequence[str]":
    memory = offer.memory
    date = (iso(memory.created_at) or "")[:10]
    origin = memory.source or memory.provenance.door
    lines = [offer.detail, " ".join(filter(None, (memory.id, origin, date)))]
    return [*lines, f"project {memory.project}"] if memory.project else lines


def _reason(name: str | None) -> "RemovalReason | None":
    from upwell.app.review import RemovalReason

    if name is None:
        return None
    if name not in list(RemovalReason):
        raise UsageError(f"--reason {name!r} is unknown", hint=", ".join(RemovalReason))
    return RemovalReason(name)
