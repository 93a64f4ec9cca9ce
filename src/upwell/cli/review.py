"""The command `review`, which offers memories for removal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from upwell.cli.command import Option
from upwell.cli.inbox import Every, Project, owner_of
from upwell.cli.output import Json, note, note_masked, say, say_json, table
from upwell.cli.session import with_app
from upwell.cli.triage import Answer, Card, Decision, decisions, edited, has_terminal
from upwell.ground.errors import UsageError
from upwell.ground.text.format import counted, iso

if TYPE_CHECKING:
    from upwell.app import App
    from upwell.app.review import Offer, Reason, Review


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
        raise UsageError("--yes needs --reason", hint="upwell review --reason stale --yes")
    owner = owner_of(project, every)

    async def work(app: "App") -> None:
        session = app.review()
        offers = await session.offers(owner, only)
        if yes:
            await _remove(session, offers)
        elif as_json:
            say_json({"offers": [_row(offer) for offer in offers]})
        elif has_terminal() and offers:
            await _triage(app, session, offers)
        else:
            rows = [_row(offer) for offer in offers]
            table(("id", "reason", "detail", "text"), rows, "Nothing to remove.")

    with_app(work)


async def _remove(session: "Review", offers: "Sequence[Offer]") -> None:
    for offer in offers:
        await session.remove(offer.memory)
    removed = counted(len(offers), "memory", "memories")
    say(f"{removed} removed; `upwell recall --trash` lists them, `upwell restore ID` restores one")


async def _triage(app: "App", session: "Review", offers: "Sequence[Offer]") -> None:
    note(
        "upwell: `drop` moves a memory to the trash; `upwell restore ID` brings it back for 30 days"
    )
    cards = [
        Card(offer, offer.reason, offer.memory.text, list(_evidence(offer))) for offer in offers
    ]
    for batch in decisions(cards, lambda text: edited(text, app.config.environment)):
        for decision in batch:
            await _carry_out(app, session, decision)


async def _carry_out(app: "App", session: "Review", decision: "Decision[Offer]") -> None:
    offer, memory = decision.item, decision.item.memory
    if decision.answer is Answer.KEEP:
        if decision.text != memory.text:
            await _reword(app, offer, decision.text)
        await session.decline(offer)
    elif decision.answer in (Answer.DROP, Answer.NEVER):
        await session.remove(memory, duplicates=decision.answer is Answer.NEVER)


async def _reword(app: "App", offer: "Offer", text: str) -> None:
    from upwell.app.proposals import reword

    note_masked((await reword(app, offer.memory, text)).redacted)


def _evidence(offer: "Offer") -> "Sequence[str]":
    memory = offer.memory
    date = (iso(memory.created_at) or "")[:10]
    origin = memory.source or memory.provenance.door
    lines = [offer.detail, " ".join(filter(None, (memory.id, origin, date)))]
    return [*lines, f"project {memory.project}"] if memory.project else lines


def _row(offer: "Offer") -> dict[str, str | None]:
    return {
        "id": offer.memory.id,
        "reason": str(offer.reason),
        "detail": offer.detail,
        "text": offer.memory.text,
        "project": offer.memory.project,
    }


def _reason(name: str | None) -> "Reason | None":
    from upwell.app.review import Reason

    if name is None:
        return None
    if name not in list(Reason):
        raise UsageError(f"--reason {name!r} is unknown", hint=", ".join(Reason))
    return Reason(name)
