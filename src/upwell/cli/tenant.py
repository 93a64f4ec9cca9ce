"""The commands `tenant export|delete|audit`."""

from typing import Annotated

from msgspec.structs import asdict

from upwell.cli.command import Argument, Group, Option
from upwell.cli.output import Json, note, say, say_json, table
from upwell.cli.session import run
from upwell.ground.errors import UsageError
from upwell.ground.text.format import counted, iso

tenant = Group("The data of a tenant: export it, delete it, read its audit log.")
Name = Annotated[str, Argument(metavar="TENANT", help="The name of the tenant.")]


@tenant.command("export")
def export(name: Name) -> None:
    """Print everything stored for a tenant as lines of JSON."""
    import json

    from upwell.app.tenant_data import exported

    async def work() -> int:
        count = 0
        async for line in exported(name):
            say(json.dumps(line))
            count += 1
        return count

    note(f"upwell: {counted(run(work()), 'line')}")


@tenant.command("delete")
def delete(
    name: Name,
    yes: Annotated[
        bool, Option("--yes", help="Confirm the deletion. Without it, nothing is deleted.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Delete everything stored for a tenant, for good. This includes its tokens, its rows in every
    table of the database, and its files in this home."""
    from upwell.app import tenant_data

    if not yes:
        raise UsageError(
            f"this deletes everything stored for {name!r}, for good",
            hint=f"upwell tenant export first, then upwell tenant delete {name} --yes",
        )
    deleted = run(tenant_data.delete(name))
    if as_json:
        say_json({"tenant": name, "deleted": deleted})
        return
    rows = sum(count for place, count in deleted.items() if place not in ("files", "tokens"))
    tokens, files = (deleted.get(place, 0) for place in ("tokens", "files"))
    parts = (counted(tokens, "token"), counted(rows, "row"), counted(files, "file"))
    say(f"deleted {', '.join(parts)} of {name}")


@tenant.command("audit")
def audit(
    name: Annotated[str, Argument(metavar="TENANT", help="Default: the home's own tenant.")] = "",
    limit: Annotated[int, Option("-n", help="The number of entries.")] = 100,
    as_json: Json = False,
) -> None:
    """List who changed the memory and who was denied access. The newest entry comes first."""
    from upwell.app import tenant_data

    events = run(tenant_data.audit(name, limit))
    if as_json:
        say_json({"events": [{**asdict(event), "at": iso(event.at)} for event in events]})
        return
    rows = [{**asdict(event), "at": iso(event.at)} for event in events]
    table(("at", "actor", "action", "subject", "outcome"), rows, "No entries.")
