"""The commands `learn git` and `learn sessions`."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec.structs import asdict

from upwell.cli.command import Argument, Group, Option
from upwell.cli.inbox import open_inbox, say_displaced
from upwell.cli.output import Json, note, note_masked, say, say_json
from upwell.cli.parameters import TranscriptHost, TranscriptPaths
from upwell.cli.progress import progress
from upwell.cli.session import read_config, with_learning
from upwell.cli.times import epoch_of
from upwell.ground.errors import UsageError
from upwell.ground.text.format import counted, iso

if TYPE_CHECKING:
    from upwell.app.capture import Gain
    from upwell.app.surfacing import LearningApp
    from upwell.replay.transcripts import Transcript

MAX_COMMITS = 12
"""The most commits that `learn git` proposes at once: nobody decides on a hundred."""

learn = Group("Propose memories from existing history.")


@learn.command("git")
def git(
    path: Annotated[Path, Argument(metavar="PATH", help="A folder in the repository.")] = Path("."),
    commits: Annotated[
        int, Option("-n", min=1, help="Number of commits to read, newest first.")
    ] = 1000,
    everything: Annotated[
        bool, Option("--all", help="Read every commit, and propose all that give a reason.")
    ] = False,
    since: Annotated[
        str | None,
        Option(metavar="T", help="Only commits since T, for example 90d or 2026-01-31."),
    ] = None,
) -> None:
    """Propose memories from the commits that say best why. Each proposal lists the files that its
    commit touches. Proposals that you have already decided on are not made again.
    """
    from upwell.capture.git import proposals_from, worthiest

    config = read_config()
    config.projects.check(path)
    limit, begins = None if everything or since else commits, epoch_of(since)
    with progress("reading commits") as show:
        reading = proposals_from(path, limit, config.environment, since=begins, show=show)
    inbox = open_inbox()
    undecided = [one for one in reading.proposals if everything or not inbox.is_settled(one)]
    intake = inbox.propose(undecided if everything else worthiest(undecided, MAX_COMMITS))
    found = counted(len(reading.proposals), "commit")
    say(f"{counted(intake.new, 'new proposal')} from {found} with a reason")
    if len(undecided) > MAX_COMMITS and not everything:
        note(f"upwell: proposed the {MAX_COMMITS} that say best why; --all proposes all")
    if reading.read < reading.total and not since:
        note(
            f"upwell: read {reading.read:,} of {reading.total:,} commits; --all reads all of them, "
            "and --since T reads only those since T"
        )
    if reading.gap:
        note(f"upwell: {reading.gap}")
    note_masked(reading.redacted)
    say_displaced(intake.displaced)
    if intake.new:
        note("upwell: `upwell inbox` asks about them, `upwell inbox accept --all` stores them")


@learn.command("sessions")
def sessions(
    paths: TranscriptPaths = None,
    host: TranscriptHost = None,
    again: Annotated[
        bool, Option("--again", help="Also read transcripts that were read before.")
    ] = False,
    lessons: Annotated[
        bool, Option("--lessons", help="Have the model of lessons.model write down lessons.")
    ] = False,
    since: Annotated[
        str | None,
        Option(metavar="T", help="With --lessons: only sessions that ended since T."),
    ] = None,
    max_tokens: Annotated[
        int | None,
        Option(min=1, help="With --lessons: the budget, instead of lessons.daily_tokens."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn from your past sessions.

    upwell records where files and symbols are. It proposes the standing rules that you gave, and
    commands that worked after others had failed. Without PATH it reads the sessions of every agent
    on this machine, but not those that git tracks in this folder. Transcripts that were read before
    are skipped.

    With --lessons, a model reads each session instead, once, and writes down what it taught."""
    from upwell.replay.transcripts import (
        SPECSTORY,
        format_named,
        is_repositorys,
        transcripts_at,
        transcripts_of_user,
    )

    format = format_named(host) if host else None
    if not paths and is_repositorys(Path.cwd()):
        note(
            f"upwell: left out {SPECSTORY}, because it came with the repository; "
            f"`upwell learn sessions {SPECSTORY}` learns from it"
        )
    if paths:
        transcripts = transcripts_at([path.resolve() for path in paths], format)
    else:
        transcripts = transcripts_of_user(Path.home(), Path.cwd(), format)
    if lessons:
        _write_lessons(transcripts, epoch_of(since), max_tokens, as_json=as_json)
        return
    if since or max_tokens:
        raise UsageError("--since and --max-tokens need --lessons")
    with progress("learning") as show:
        gain = with_learning(lambda app: learned_from(app, transcripts, show, again=again))
    if as_json:
        say_json({"transcripts": len(transcripts), **asdict(gain)})
        return
    say_gain(len(transcripts), gain)
    note_masked(gain.redacted)
    say_displaced(gain.displaced)
    say_learned()
    if gain.proposed:
        note("upwell: `upwell inbox` asks about the proposals")


def _write_lessons(
    transcripts: "Sequence[Transcript]", since: float, max_tokens: int | None, *, as_json: bool
) -> None:
    from upwell.app.lesson_book import write_past
    from upwell.cli.lessons import say_lessons

    with progress("reading sessions") as show:
        gain, unreadable = with_learning(
            lambda app: write_past(
                app, transcripts, show, since=since, max_tokens=max_tokens, now=time.time()
            )
        )
    for line in unreadable:
        note(f"upwell: {line}")
    if as_json:
        say_json({name: value for name, value in asdict(gain).items() if name != "examples"})
        return
    say_lessons(gain)
    say_learned()


def say_learned() -> None:
    """Print what past sessions taught, and what of it matters most."""
    from upwell.app.taught import learned

    known = with_learning(learned)
    if not known.sessions:
        return
    say(f"{known.sentence}{'. What matters most:' if known.foremost else ''}")
    for taught in known.foremost:
        project = Path(taught.project or "").name
        day = (iso(taught.at) or "")[:10] if taught.at else ""
        session = f"session {taught.sessions[0][:8]}" if taught.sessions else ""
        times = f"{taught.times} sessions" if taught.times > 1 else ""
        waits = "waits in `upwell inbox`" if taught.waits else ""
        say(f"  {', '.join(filter(None, (taught.label, times, project, day, session, waits)))}")
        say(f"    {' '.join(taught.text.split())}")


def say_gain(transcripts: int, gain: "Gain") -> None:
    """Print what was learned from these transcripts."""
    read = counted(transcripts, "transcript")
    if gain.read_before:
        new = counted(transcripts - gain.read_before, "new transcript")
        read = f"{new} ({gain.read_before} read before)"
    say(
        f"{read}: {counted(gain.proposed, 'new proposal')}, "
        f"{counted(gain.stored, 'new memory', 'new memories')}, "
        f"{counted(gain.strengthened, 'known memory', 'known memories')} confirmed, "
        f"{counted(gain.places, 'place')} of files and symbols"
    )


async def learned_from(
    app: "LearningApp",
    transcripts: "Sequence[Transcript]",
    show: Callable[[int, int], None],
    *,
    again: bool = False,
) -> "Gain":
    """Learn from these transcripts. A transcript that cannot be read is skipped and reported, and
    so are the agents whose transcripts are not fully understood."""
    from upwell.app.capture import Gain
    from upwell.replay.transcripts.base import ReadTally
    from upwell.replay.transcripts.census import Census

    capture, total, census = app.session_capture(), Gain(), Census()
    for done, transcript in enumerate(transcripts, 1):
        tally = ReadTally()
        try:
            total.add(await capture.read(transcript, again=again, tally=tally))
        except (UsageError, OSError) as error:
            note(f"upwell: {transcript.path} is left out: {error}")
        census.add(transcript.format, tally)
        show(done, len(transcripts))
    for line in census.lines():
        note(f"upwell: {line}")
    return total
