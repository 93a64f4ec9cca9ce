"""inbox · learn git · hook capture"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from upwell.cli.hooks import hook
from upwell.cli.output import Json, note, say, say_json, table
from upwell.cli.session import with_app
from upwell.ground.errors import UsageError
from upwell.ground.text.counts import counted

if TYPE_CHECKING:
    from upwell.app import App
    from upwell.capture.inbox import Inbox

inbox = typer.Typer(help="What was proposed to be remembered. Nothing of it is surfaced.")
learn = typer.Typer(help="Propose memories from what is there.", no_args_is_help=True)
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Which.")]
All = Annotated[bool, typer.Option("--all", help="Every one.")]


def register(app: typer.Typer) -> None:
    app.add_typer(inbox, name="inbox")
    app.add_typer(learn, name="learn")


@inbox.callback(invoke_without_command=True)
def waiting(context: typer.Context, as_json: Json = False) -> None:
    """Show what waits to be kept or refused."""
    if context.invoked_subcommand:
        return
    found = _inbox().waiting()
    if as_json:
        say_json({"proposals": [{"id": one.id, **asdict(one)} for one in found]})
        return
    rows = [{"id": one.id, "from": one.source, "why": one.why, "text": one.text} for one in found]
    table(("id", "from", "why", "text"), rows, "The inbox is empty.")


@inbox.command("accept")
def accept(ids: Ids = None, everything: All = False) -> None:
    """Remember these."""
    named, box = _named(ids, everything), _inbox()
    chosen = box.chosen(named)

    async def work(app: "App") -> int:
        return len(await app.memory.add_many([one.memory() for one in chosen]))

    kept = with_app(work) if chosen else 0
    box.take([one.id for one in chosen])
    say(f"{counted(kept, 'memory', 'memories')} kept")


@inbox.command("refuse")
def refuse(ids: Ids = None, everything: All = False) -> None:
    """Let go of these; they are not proposed again."""
    box = _inbox()
    chosen = box.chosen(_named(ids, everything))
    say(f"{counted(len(box.take([one.id for one in chosen])), 'proposal')} let go")


@learn.command("git")
def git(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A folder in the repository.")
    ] = Path("."),
    commits: Annotated[int, typer.Option("-n", min=1, help="How many of the latest.")] = 1000,
) -> None:
    """Propose memories from commit messages that say why, with the files they touched."""
    from upwell.capture.git import proposals_from
    from upwell.config import load

    found = proposals_from(path, commits, load().environment)
    new = _inbox().propose(found)
    reasons = "commit that says why" if len(found) == 1 else "commits that say why"
    say(f"{counted(new, 'new proposal')} from {len(found):,} {reasons}")
    if new:
        note("upwell: `upwell inbox` shows them, `upwell inbox accept --all` keeps them")


@hook.command("capture")
def capture(state: Annotated[str, typer.Argument(metavar="on|off")]) -> None:
    """Let the end of a turn propose what the user decided or laid down; off by default."""
    from upwell.setup.settings import set_setting

    if state not in ("on", "off"):
        raise UsageError(f"{state[:20]!r} is neither on nor off")
    path = set_setting("hook", "capture", state == "on")
    say(f"capture is {state} ({path}); `upwell inbox` shows what was proposed")


def _named(ids: list[str] | None, everything: bool) -> list[str]:
    if bool(ids) == everything:
        raise UsageError("name proposals, or --all", hint="`upwell inbox` lists them")
    return ids or []


def _inbox() -> "Inbox":
    from upwell.capture.inbox import Inbox
    from upwell.config import load
    from upwell.ground.redact import redact

    return Inbox(load().home.prepare().inbox_file, lambda text: redact(text)[0])
