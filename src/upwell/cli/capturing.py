"""inbox · learn git · learn sessions · hook capture"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from upwell.cli.hooks import hook
from upwell.cli.output import Json, note, say, say_json, table
from upwell.cli.session import with_app
from upwell.ground.errors import UsageError
from upwell.ground.text.format import counted

if TYPE_CHECKING:
    from upwell.app import App
    from upwell.app.sessions import Gain
    from upwell.capture.inbox import Inbox, Proposal
    from upwell.replay.transcripts import Transcript

inbox = typer.Typer(help="Proposed memories, waiting for your decision. None of them is surfaced.")
learn = typer.Typer(help="Propose memories from existing history.", no_args_is_help=True)
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of proposals.")]
All = Annotated[bool, typer.Option("--all", help="All proposals.")]


def register(app: typer.Typer) -> None:
    app.add_typer(inbox, name="inbox")
    app.add_typer(learn, name="learn")


@inbox.callback(invoke_without_command=True)
def waiting(context: typer.Context, as_json: Json = False) -> None:
    """List the proposals."""
    if context.invoked_subcommand:
        return
    proposals = _inbox().waiting()
    if as_json:
        say_json({"proposals": [{"id": item.id, **asdict(item)} for item in proposals]})
        return
    rows = [
        {"id": item.id, "from": item.source, "why": _why(item), "text": item.text}
        for item in proposals
    ]
    table(("id", "from", "why", "text"), rows, "The inbox is empty.")


def _why(proposal: "Proposal") -> str:
    count = proposal.occurrences
    return proposal.why if count == 1 else f"{proposal.why}, in {count} sessions"


@inbox.command("accept")
def accept(ids: Ids = None, everything: All = False) -> None:
    """Store proposals as memories."""
    box = _inbox()
    proposals = box.chosen(_ids(ids, everything))

    async def work(app: "App") -> int:
        return len(await app.memory.add_many([item.memory() for item in proposals]))

    stored = with_app(work) if proposals else 0
    box.take([item.id for item in proposals])
    say(f"{counted(stored, 'memory', 'memories')} stored")


@inbox.command("refuse")
def refuse(ids: Ids = None, everything: All = False) -> None:
    """Drop proposals. They are not proposed again."""
    box = _inbox()
    proposals = box.chosen(_ids(ids, everything))
    dropped = box.take([item.id for item in proposals])
    say(f"{counted(len(dropped), 'proposal')} dropped")


@learn.command("git")
def git(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A folder in the repository.")
    ] = Path("."),
    commits: Annotated[
        int, typer.Option("-n", min=1, help="Number of commits to read, newest first.")
    ] = 1000,
) -> None:
    """Propose memories from commits that give a reason. Each proposal names the files that its
    commit touches."""
    from upwell.capture.git import proposals_from
    from upwell.config import load

    proposals = proposals_from(path, commits, load().environment)
    new = _inbox().propose(proposals)
    say(f"{counted(new, 'new proposal')} from {counted(len(proposals), 'commit')} with a reason")
    if new:
        note("upwell: `upwell inbox` lists them, `upwell inbox accept --all` stores them")


@learn.command("sessions")
def sessions(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="Transcripts, or folders of them."),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="claude, codex, copilot, gemini, opencode, specstory or events."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn from the sessions that you already had.

    upwell notes where files and names of the code are, and proposes commands that worked after
    others had failed, and your standing rules. Without PATH it reads the sessions of every agent on
    this machine. A transcript that was read before is not read again."""
    from upwell.cli.progress import progress
    from upwell.replay.transcripts import format_named, transcripts_at, transcripts_of_user

    format = format_named(host) if host else None
    if paths:
        transcripts = transcripts_at([path.resolve() for path in paths], format)
    else:
        transcripts = transcripts_of_user(Path.home(), Path.cwd(), format)
    with progress("learning") as show:
        gain = with_app(lambda app: learned_from(app, transcripts, show))
    if as_json:
        say_json({"transcripts": len(transcripts), **asdict(gain)})
        return
    say_gain(len(transcripts), gain)
    if gain.proposed:
        note("upwell: `upwell inbox` lists the proposals")


def say_gain(transcripts: int, gain: "Gain") -> None:
    """Print the gain from these transcripts."""
    say(
        f"{counted(transcripts, 'transcript')}: {counted(gain.proposed, 'new proposal')}, "
        f"{counted(gain.stored, 'new memory', 'new memories')}, {gain.strengthened} found again, "
        f"{counted(gain.places, 'place')}"
    )


async def learned_from(
    app: "App", transcripts: "Sequence[Transcript]", show: Callable[[int, int], None]
) -> "Gain":
    """Learn from these transcripts. A transcript that cannot be read is skipped with a remark."""
    from upwell.app.sessions import Gain

    learning, total = app.session_learning(), Gain()
    for done, transcript in enumerate(transcripts, 1):
        try:
            total.add(await learning.read(transcript))
        except (UsageError, OSError) as error:
            note(f"upwell: {transcript.path} is left out: {error}")
        show(done, len(transcripts))
    return total


@hook.command("capture")
def capture(state: Annotated[str, typer.Argument(metavar="on|off")]) -> None:
    """Learn from each turn when it ends. Off by default.

    upwell then notes where files and names of the code are, and proposes commands that worked and
    your standing rules."""
    from upwell.setup.settings import set_setting

    if state not in ("on", "off"):
        raise UsageError(f"{state[:20]!r} is not a state; give on or off")
    path = set_setting("hook", "capture", state == "on")
    say(f"capture is {state} ({path}); `upwell inbox` lists the proposals")


def _ids(ids: list[str] | None, everything: bool) -> list[str]:
    if bool(ids) == everything:
        raise UsageError("give proposal ids, or --all", hint="`upwell inbox` lists them")
    return ids or []


def _inbox() -> "Inbox":
    from upwell.capture.inbox import inbox_at
    from upwell.config import load

    return inbox_at(load().home.prepare().inbox_file)
