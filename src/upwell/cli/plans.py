"""Shows planned changes of files, asks about them, and reports what became of them. Then what
`upwell setup --undo` does with them.
"""

import sys
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from upwell.cli.output import note, raw, say
from upwell.cli.servers import say_improvised
from upwell.cli.session import with_memory
from upwell.ground.errors import UsageError
from upwell.ground.text.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from upwell.app.capture import Holdings
    from upwell.app.memory import MemoryApp
    from upwell.app.setting_up import Report, SettingUp, UndoPlan
    from upwell.hosts.install import FilePlan


def state(plan: "FilePlan") -> str:
    """What a plan does to its file, with the numbers of lines."""
    if not plan.changes:
        return f"{plan.path} is already set up"
    verb = "create" if plan.before is None else "remove" if plan.after is None else "change"
    lines = plan.diff.splitlines()[2:]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"{verb} {plan.path} (+{added} -{removed})"


def expect_terminal() -> None:
    """Refuse to go on if nobody can be asked.

    Raises:
        UsageError: there is no terminal.
    """
    if not sys.stdin.isatty():
        raise UsageError(
            "setup asks before it changes anything, and there is no terminal to ask on",
            hint="--dry-run shows the changes, --yes makes them",
        )


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


MAX_LISTED = 20


def undo_setup(
    setting_up: "SettingUp", *, only_servers: bool, dry_run: bool, yes: bool, forget: bool
) -> None:
    """Undo everything that setup changed; with `forget`, also drop what it learned. With
    `only_servers`, undo what concerns servers, in whichever way they came to upwell."""
    plans = setting_up.undoing(only_servers=only_servers)
    learned = None if only_servers else setting_up.learned()
    if learned and setting_up.has_lessons:
        learned = _with_later(learned)

    def show() -> None:
        show_plans((*plans.files, *plans.hooks))

    if dry_run:
        show()
    _summarise_undo(plans)
    count = with_memory(lambda app: _listed(app, learned)) if learned else 0
    is_known = count > 0 or setting_up.home.sessions_db.exists()
    if not (plans.is_recorded or plans.refused or (forget and is_known)):
        say("there is nothing to undo")
        return
    if dry_run:
        note("upwell: nothing was changed; without --dry-run, setup asks and then undoes this")
        return
    if not yes:
        expect_terminal()
        confirm("Undo all of this?", show)
    faults: list[str] = []
    setting_up.undo(reporting(faults), only_servers=only_servers)
    if forget and learned:
        _forget(setting_up, learned, count)
    elif count:
        say("what setup learned stays; `upwell setup --undo --forget` drops it")
    if faults:
        raise Exit(1)


def _with_later(learned: "Holdings") -> "Holdings":
    return with_memory(lambda app: app.session_capture().with_later(learned))


def _summarise_undo(plans: "UndoPlan") -> None:
    for plan in (*plans.files, *plans.hooks):
        say(f"upwell would {state(plan)}")
    say_improvised(plans.files)
    for path, command in plans.others:
        note(f"upwell: setup did not change {path}; `{command}` removes upwell from it")
    refuse(plans.refused)


def _forget(setting_up: "SettingUp", learned: "Holdings", count: int) -> None:
    from upwell.ground.sqlite.file import delete_database

    if setting_up.has_lessons:
        # The daemon may have written another one while the user was asked.
        latest = _with_later(learned)
        count += len(with_memory(lambda app: _findings(app, latest.since(learned))))
        learned = latest
    with_memory(lambda app: app.session_capture().forget(learned))
    setting_up.forgot_learned()
    say(f"dropped {counted(count, 'finding')} from past sessions")
    if setting_up.home.sessions_db.exists():
        delete_database(setting_up.home.sessions_db)
        say("deleted the index of past sessions")
    if memories := with_memory(lambda app: app.session_capture().accepted(learned)):
        accepted = counted(len(memories), "memory", "memories")
        say(f"kept: {accepted} that you accepted; `upwell forget ID` removes one")
        for memory in memories[:MAX_LISTED]:
            say(f"  {memory.id}: {' '.join(memory.text.split())}")
        if len(memories) > MAX_LISTED:
            say(f"  {len(memories) - MAX_LISTED} more: `upwell recall`")
    if own := with_memory(lambda app: app.session_capture().own_lessons()):
        say(
            f"kept: {counted(own, 'lesson')} that you edited or pinned; `upwell lessons` lists them"
        )
    say(f"upwell's own folder {setting_up.home.root} stays; delete it to remove everything")


async def _listed(app: "MemoryApp", learned: "Holdings") -> int:
    """List the findings of setup that still exist. Returns how many there are."""
    lines = await _findings(app, learned)
    for line in lines[:MAX_LISTED]:
        say(f"learned: {' '.join(line.split())}")
    if len(lines) > MAX_LISTED:
        say(f"learned: {len(lines) - MAX_LISTED} more")
    if learned.places:
        say(f"learned: {counted(len(learned.places), 'place')} of files and symbols")
    return len(lines) + len(learned.places)


async def _findings(app: "MemoryApp", learned: "Holdings") -> list[str]:
    """The memories and proposals among the findings of setup that still exist, one a line."""
    memories = await app.session_capture().learned(learned)
    proposals = [item for item in app.inbox().waiting() if item.id in learned.proposals]
    lines = [f"memory {item.id}: {item.text}" for item in memories]
    return [*lines, *(f"proposal {item.id}: {item.text}" for item in proposals)]
