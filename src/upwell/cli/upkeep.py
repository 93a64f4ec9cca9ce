"""The commands `config show|check`, `cache clear`, `backup`, `doctor`, `migrate` and `demo`."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import click
from click.exceptions import Exit
from msgspec.structs import asdict

from upwell.cli.command import Group, Option
from upwell.cli.output import Json, note, progress, row, say, say_json
from upwell.cli.session import folder, read_config, run
from upwell.ground.errors import StoreError
from upwell.ground.text.words import counted

if TYPE_CHECKING:
    from upwell.app.team import Outcome
    from upwell.ground.types.rpc import Ping


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
    from upwell.app.team import migrate as move

    with progress("moving memories") as show:
        outcome = run(move(to, origin, apply=apply, notes=notes, progress=show))
    if as_json:
        plan = outcome.plan
        say_json(
            {
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
        )
    else:
        _report(outcome)
    if outcome.verified and outcome.verified.different:
        different = outcome.verified.different
        raise StoreError(
            f"{counted(len(different), 'memory differs', 'memories differ')} after the move, "
            f"the first is {different[0]!r}",
            hint="run the same command again",
        )


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


config = Group("Show or check the configuration.")
cache = Group("Cached server responses.")


def backup(as_json: Json = False) -> None:
    """Back up the memory now. A backup is also made every day."""
    from upwell.app import back_up
    from upwell.app.store import restoring
    from upwell.ground.files import Home, default_home

    read_config()  # reports invalid settings
    copies = run(back_up())
    if as_json:
        say_json({"backup": str(copies[0]), "kept": [str(path) for path in copies]})
        return
    say(str(copies[0]))
    way_back = restoring(Home(default_home()), copies[0])
    note(f"upwell: {counted(len(copies), 'backup')}; {way_back}")


@cache.command("clear")
def clear() -> None:
    """Clear the cache."""
    from upwell.app import clear_cached_responses

    say(f"cleared {counted(run(clear_cached_responses()), 'cached response')}")


@config.command("show")
def show(as_json: Json = False) -> None:
    """Print every setting as TOML, with its origin."""
    from upwell.config import load

    values = load().shown()
    if as_json:
        say_json(
            {
                key: {"value": plain(entry.value), "origin": entry.origin}
                for key, entry in values.items()
            }
        )
        return
    for key, entry in values.items():
        value = plain(entry.value)
        line = f"# {key} is not set" if value is None else f"{key} = {_as_toml(value)}"
        say(f"{line}  # {entry.origin}")


@config.command("check")
def check(as_json: Json = False) -> None:
    """Check the configuration and report every mistake in it."""
    from upwell.app import config_mistakes
    from upwell.ground.context_windows import unknown_model

    config, mistakes = config_mistakes()
    remark = "" if mistakes else unknown_model(config.agent)
    if as_json:
        say_json(
            {
                "ok": not mistakes,
                "file": str(config.home.config_file),
                "settings": len(config.values),
                "mistakes": [{"message": each.message, "hint": each.hint} for each in mistakes],
                "remark": remark,
            }
        )
    else:
        for text in filter(None, (*mistakes, remark)):
            note(f"upwell: {text}")
        if not mistakes:
            say(f"{config.home.config_file}: {counted(len(config.values), 'setting')}, all valid")
    if mistakes:
        raise Exit(1)


def doctor(as_json: Json = False) -> None:
    """Check every part of upwell, and print how to fix each fault."""

    from upwell.app import examine

    async def findings() -> dict[str, "Ping"]:
        pings = {}
        async for part, ping in examine(folder()):
            pings[part] = ping
            if not as_json:
                row(((part, 14), ("ok" if ping.ok else "FAILED", 6), (ping.detail, 0)))
                if not ping.ok and ping.hint:
                    note(f"upwell: {part}: {ping.hint}")
        return pings

    parts = run(findings())
    is_well = all(ping.ok for ping in parts.values())
    if as_json:
        say_json(
            {
                "ok": is_well,
                "parts": {
                    part: {"ok": ping.ok, "detail": ping.detail, "hint": ping.hint}
                    for part, ping in parts.items()
                },
            }
        )
    if not is_well:
        raise Exit(1)


def demo() -> None:
    """See upwell at work on a real server, real files and memories."""
    from upwell.app import decisions
    from upwell.demo.play import play

    run(play(click.echo, read_config().environment, decisions))


def _as_toml(value: Any) -> str:
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    entries = []
    for name, entry in value.items():
        is_bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
        key = name if is_bare else json.dumps(name, ensure_ascii=False)
        entries.append(f"{key} = {_as_toml(entry)}")
    return f"{{ {', '.join(entries)} }}"


def plain(value: Any) -> Any:
    """A setting as a value that JSON can represent."""
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, tuple | list):
        return [plain(entry) for entry in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
