"""The command `import --from`, which imports memories, rules, notes and settings from other
programs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from upwell.cli.output import note, say, say_json, table
from upwell.cli.progress import progress
from upwell.cli.session import with_app
from upwell.ground.errors import UsageError
from upwell.ground.text.format import counted

if TYPE_CHECKING:
    from upwell.app import App
    from upwell.memory.documents.recall import Progress
    from upwell.migration.base import Program, StorePlace
    from upwell.migration.plan import ImportPlan
    from upwell.migration.projects import Projects

EVERY_PROJECT = "every project"


def import_from(
    name: str,
    paths: list[Path],
    *,
    projects: list[str],
    everywhere: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Count what can be imported from a program. Unless `dry_run` is set, also import it."""
    from upwell.migration.projects import projects_at
    from upwell.migration.registry import program_named

    program, place = program_named(name), place_of_user()
    known = projects_at(place, projects, everywhere=everywhere)
    stores = paths or program.stores(place)
    if not stores:
        raise UsageError(
            f"no {name} on this machine: nothing at {program.usual}",
            hint=f"give the path: upwell import --from {name} PATH",
        )
    for path in paths:
        if not path.exists():
            raise UsageError(f"cannot import {path}: no such file or folder", hint="check the path")
    with progress(f"importing from {name}") as show:
        plan = with_app(lambda app: _move(app, program, stores, place, known, show, dry_run))
    if as_json:
        say_json(plan.described(dry_run=dry_run))
    else:
        _report(plan, dry_run=dry_run)


def say_stores() -> None:
    """Print the stores of other programs on this machine, each with the command that imports it."""
    from upwell.migration.registry import PROGRAMS, program_named

    place = place_of_user()
    stores = {name: program_named(name).stores(place) for name in PROGRAMS}
    if any(stores.values()):
        say("upwell can also import from other programs (--dry-run counts first):")
    for name, paths in stores.items():
        if paths:
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            say(f"  upwell import --from {name:<18}  {paths[0]}{more}")


def place_of_user() -> "StorePlace":
    """The folders in which the user's programs keep their files."""
    from upwell.config import load
    from upwell.migration.base import StorePlace

    return StorePlace(Path.home(), load().environment, Path(os.getcwd()))


async def _move(
    app: "App",
    program: "Program",
    stores: list[Path],
    place: "StorePlace",
    projects: "Projects",
    show: "Progress",
    dry_run: bool,
) -> "ImportPlan":
    from upwell.app.moving_in import moving_in

    moving = moving_in(app.config, app.memory)
    plan = await moving.plan(program, stores, place, projects)
    if not dry_run:
        await moving.carry_out(plan, show)
        if plan.memories:
            await app.embeddings.catch_up(show)
    return plan


def _report(plan: "ImportPlan", *, dry_run: bool) -> None:
    for store in plan.stores:
        say(f"{plan.program}: {store}")
    rows = [
        {"count": count, "kind": kind, "place": place or EVERY_PROJECT}
        for (kind, place), count in sorted(plan.counts.items())
    ]
    if rows:
        table(("count", "kind", "place"), rows, "")
    for why, omission in plan.left_out.items():
        note(f"upwell: left out {omission.count:,}: {why}")
        for example in omission.examples[:1]:
            note(f"          for example: {example}")
    for rule, count in plan.redacted.items():
        note(f"upwell: {counted(count, 'secret')} masked ({rule})")
    if plan.changed:
        changed = counted(plan.changed, "text")
        note(f"upwell: {changed} changed in {plan.program} since the last import")
    say(_total(plan, dry_run=dry_run))


def _total(plan: "ImportPlan", *, dry_run: bool) -> str:
    if not plan.total:
        return "nothing to import"
    if not dry_run:
        return f"imported {plan.total:,}"
    return f"would import {plan.total:,}; nothing was written"
