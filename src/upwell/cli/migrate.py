"""The command `migrate`, which moves a home's memories between SQLite and PostgreSQL."""

from typing import TYPE_CHECKING, Annotated

from msgspec.structs import asdict

from upwell.cli.command import Option
from upwell.cli.output import Json, note, say, say_json
from upwell.cli.progress import progress
from upwell.cli.session import run
from upwell.ground.errors import StoreError
from upwell.ground.text.format import counted

if TYPE_CHECKING:
    from upwell.app.relocating import Outcome


def migrate(
    to: Annotated[
        str,
        Option(metavar="URL", help="postgresql://…, or sqlite for this home's own files."),
    ],
    origin: Annotated[
        str,
        Option("--from", metavar="URL", help="With --to sqlite: the database. Default: store.url."),
    ] = "",
    apply: Annotated[
        bool, Option("--apply", help="Copy the memories. Without it, only count them.")
    ] = False,
    notes: Annotated[
        bool, Option("--notes", help="Also copy the notes of stm.json as memories, once.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Move this home's memories to a PostgreSQL database, or back. The source stays as it is and
    may be in use. The same command continues an interrupted move, and a further run copies only
    what has changed since.
    """
    from upwell.app.relocating import migrate as move

    with progress("moving memories") as show:
        outcome = run(move(to, origin, apply=apply, notes=notes, progress=show))
    if as_json:
        say_json(_as_json(outcome))
    else:
        _report(outcome)
    if outcome.verified and outcome.verified.different:
        different = outcome.verified.different
        raise StoreError(
            f"{counted(len(different), 'memory differs', 'memories differ')} after the move, "
            f"the first is {different[0]!r}",
            hint="run the same command again",
        )


def _as_json(outcome: "Outcome") -> dict[str, object]:
    plan = outcome.plan
    return {
        "from": outcome.source,
        "to": outcome.target,
        "memories": plan.present,
        "to_copy": len(plan.copy),
        "deleted": len(plan.discard),
        "newer_there": len(plan.newer),
        "deleted_there": len(plan.deleted),
        "notes": outcome.notes,
        "ratings": outcome.ratings,
        "verified": asdict(outcome.verified) if outcome.verified else None,
    }


def _report(outcome: "Outcome") -> None:
    plan, verified = outcome.plan, outcome.verified
    say(f"from {outcome.source}")
    say(f"to   {outcome.target}")
    say(f"{counted(plan.present, 'memory', 'memories')}, {len(plan.copy):,} to copy")
    if plan.discard:
        deleted = counted(len(plan.discard), "memory", "memories")
        say(f"{deleted} deleted in the source, to move to the trash of the target")
    if outcome.notes:
        say(f"{counted(outcome.notes, 'note')} of stm.json")
    for count, remark in (
        (len(plan.newer), "have a newer version in the target, which stays"),
        (len(plan.deleted), "were deleted in the target and stay deleted"),
    ):
        if count:
            note(f"upwell: {count:,} {remark}")
    if verified is None:
        say("nothing was copied; --apply copies the memories")
        return
    say(f"verified: {verified.equal:,} equal on both sides, sha256 {verified.digest[:16]}")
    if outcome.ratings:
        say(f"{counted(outcome.ratings, 'rating')} copied")
    for count, remark in (
        (verified.changed_there, "changed in the target since they were copied"),
        (verified.deleted_there, "deleted in the target since they were copied"),
    ):
        if count:
            note(f"upwell: {count:,} {remark}")
