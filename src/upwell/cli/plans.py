"""Shows planned changes of files, asks about them, and reports what became of them."""

from typing import TYPE_CHECKING

import click

from upwell.cli.output import note, raw, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from upwell.app.setting_up import Report
    from upwell.hosts.install import FilePlan


def state(plan: "FilePlan") -> str:
    """What a plan does to its file, with the numbers of lines."""
    if not plan.changes:
        return f"{plan.path} is already set up"
    verb = "create" if plan.before is None else "remove" if plan.after is None else "change"
    lines = plan.diff.splitlines()[2:]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"{verb} {plan.path} (+{added} -{removed})"


def confirm(question: str, show: "Callable[[], None]") -> None:
    """Ask until the user agrees. `show()` shows every changed line.

    Raises:
        Abort: the user does not agree.
    """
    while True:
        answer = click.prompt(
            f"{question} [y/N, d shows every changed line]", "n", show_default=False
        )
        match answer.strip().lower():
            case "y" | "yes":
                return
            case "d":
                show()
            case _:
                note("upwell: nothing was changed")
                raise click.Abort


def show_plans(plans: "Iterable[FilePlan]") -> None:
    """Print the diffs."""
    for plan in plans:
        raw(masked_diff(plan))


def refuse(refused: dict[str, str]) -> None:
    """Print why files cannot be changed."""
    for path, why in refused.items():
        note(f"upwell: {path}: {why}")


def reporting(faults: list[str]) -> "Report":
    """Return a function that prints what became of each file, and adds failed ones to `faults`."""

    def report(path: str, why: str) -> None:
        if why:
            faults.append(path)
            note(f"upwell: {path}: {why}")
        else:
            say(f"done: {path}")

    return report


def masked_diff(plan: "FilePlan") -> str:
    """The diff of a plan without secrets."""
    from msgspec.structs import replace

    from upwell.ground.secrets.redact import redact
    from upwell.ground.settings import masked
    from upwell.hosts.edits import JSON, TOML, EditFormat

    formats: dict[str, EditFormat] = {".json": JSON, ".jsonc": JSON, ".toml": TOML}

    def shown(text: str | None) -> str | None:
        format = formats.get(plan.path.suffix)
        if text is None or format is None:
            return text
        return format.shown(text, lambda key, value: bool(masked(key, value) != value))

    diff = replace(plan, before=shown(plan.before), after=shown(plan.after)).diff
    return redact(diff, keep_lines=True)[0]
