"""The commands `learn git|sessions` and `lessons`: what history taught, also as a model wrote it
down. Also what `upwell setup` says and asks about lessons.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from msgspec.structs import asdict

from upwell.cli.command import Argument, Group, Option
from upwell.cli.inbox import open_inbox, say_displaced
from upwell.cli.output import (
    Json,
    TranscriptHost,
    TranscriptPaths,
    epoch_of,
    note,
    note_masked,
    progress,
    say,
    say_json,
    table,
    transcripts_named,
)
from upwell.cli.session import folder, read_config, with_memory
from upwell.ground.errors import UsageError
from upwell.ground.names import memory_id as id_in
from upwell.ground.text.words import counted, iso

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from upwell.app.capture import Gain
    from upwell.app.lesson_past import LessonOffer
    from upwell.app.lessons import LessonGain
    from upwell.app.memory import MemoryApp
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
    from upwell.replay.transcripts import SPECSTORY, is_repositorys

    if not paths and is_repositorys(Path.cwd()):
        note(
            f"upwell: left out {SPECSTORY}, because it came with the repository; "
            f"`upwell learn sessions {SPECSTORY}` learns from it"
        )
    transcripts = transcripts_named([path.resolve() for path in paths or ()], host)
    if lessons:
        _write_lessons(transcripts, epoch_of(since), max_tokens, as_json=as_json)
        return
    if since or max_tokens:
        raise UsageError("--since and --max-tokens need --lessons")
    with progress("learning") as show:
        gain = with_memory(lambda app: learned_from(app, transcripts, show, again=again))
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
    from upwell.app.lesson_past import write_past

    with progress("reading sessions") as show:
        gain, unreadable = with_memory(
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
    from upwell.app.lesson_book import learned

    known = with_memory(learned)
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
    app: "MemoryApp",
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


Id = Annotated[str, Argument(metavar="ID", help="An id of `upwell lessons`, or its beginning.")]


def listed(
    every_project: Annotated[
        bool, Option("--every-project", help="Those of every project.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the lessons of this project, newest first."""
    from upwell.app.lesson_book import rows
    from upwell.ground.project import project_of

    project = None if every_project else project_of(folder())

    async def work(app: "MemoryApp") -> tuple[list[dict[str, Any]], int]:
        found = await rows(app, project)
        return found, 0 if found or project is None else len(await rows(app))

    found, others = with_memory(work)
    if as_json:
        say_json({"lessons": found})
        return
    for row in found:
        row["at"] = iso(row["at"]) if row["at"] else ""
        states = ("pinned" if row["pinned"] else "", "edited" if row["edited"] else "")
        row["state"] = ", ".join(filter(None, states))
    columns = ("id", "at", "kind", "state", "text")
    nothing = "No lessons yet; `upwell learn sessions --lessons` writes them."
    if others:
        exist = f"{counted(others, 'lesson')} of other projects"
        nothing = f"No lessons here, but {exist}: `upwell lessons --every-project`"
    table(columns, found, nothing)


lessons = Group("What past sessions taught, as a model wrote it down.", listed)


@lessons.command("edit")
def edit(
    lesson: Id,
    text: Annotated[list[str], Argument(metavar="TEXT", help="The new text.")],
) -> None:
    """Change a lesson's text. It is then yours: no later session replaces it."""
    from upwell.app.lesson_book import edit as changed

    memory = with_memory(lambda app: changed(app, id_in(lesson), " ".join(text)))
    say(memory.text)


@lessons.command("pin")
def pin(lesson: Id) -> None:
    """Make a lesson a standing rule, which opens every session of its project."""
    from upwell.app.lesson_book import pin as pinned

    memory = with_memory(lambda app: pinned(app, id_in(lesson)))
    say(memory.text)


@lessons.command("drop")
def drop(lesson: Id) -> None:
    """Move a lesson to the trash. No later session brings it back."""
    from upwell.app.lesson_book import drop as dropped

    memory = with_memory(lambda app: dropped(app, id_in(lesson)))
    say(f"dropped {memory.id}; `upwell restore` brings it back")


@lessons.command("from")
def origin(lesson: Id) -> None:
    """Show where a lesson comes from: its session, and the events that show it."""
    from upwell.app.lesson_book import origin_lines

    for line in with_memory(lambda app: origin_lines(app, id_in(lesson))):
        say(line)


def offer_state(offer: "LessonOffer", *, is_chosen: bool = False) -> str:
    """What setup does about lessons, or what it offers, on one line."""
    if not offer.setting:
        return (
            "none: no agent's program that could write them (such as claude or codex) is on the "
            "PATH, and llm.base_url is not set"
        )
    writers, past = " and ".join(offer.writers), _past(offer)
    if is_chosen:
        return f"{writers} writes down what sessions taught: {past or 'those to come'}"
    if offer.is_on:
        return f"on ({writers}){f'; --lessons writes those of {past}' if past else ''}"
    return (
        f"none; --lessons has {writers} write down what sessions taught: {past or 'those to come'}"
    )


def offer_question(offer: "LessonOffer") -> str:
    """The question whether a model may write lessons, with what they cost."""
    past = _past(offer) or "the sessions to come"
    return f"Also let {' and '.join(offer.writers)} write down what your sessions taught: {past}?"


def _past(offer: "LessonOffer") -> str:
    if not offer.sessions:
        return ""
    which = counted(offer.sessions, "past session")
    if offer.at_once < offer.sessions:
        which = f"the latest {offer.at_once} of about {which}"
    return (
        f"{which} (about {round(offer.tokens, -3):,} tokens), then each new one (at most "
        f"{offer.daily_tokens:,} tokens a day)"
    )


class Runs(Protocol):
    """Runs some work with an app, and returns its result."""

    def __call__[T](self, work: "Callable[[MemoryApp], Awaitable[T]]", /) -> T: ...


def write_past_lessons(
    runs: Runs, transcripts: "Sequence[Transcript]", offer: "LessonOffer"
) -> None:
    """Have a model read the latest past sessions of an offer, and say what it wrote and how to go
    on."""
    from upwell.app.lesson_past import write_past

    note(f"upwell: {' and '.join(offer.writers)} reads {counted(offer.at_once, 'session')} …")
    now = time.time()
    with progress("writing lessons") as show:
        gain, _ = runs(
            lambda app: write_past(app, transcripts, show, newest=offer.at_once, now=now)
        )
    _say_read(gain)
    if (left := offer.sessions - gain.read) > 0:
        spent = "; today's tokens are spent" if gain.is_over_budget else ""
        say(
            f"{counted(left, 'past session')} left: `upwell learn sessions --lessons` goes on with "
            f"them{spent}"
        )


def say_lessons(gain: "LessonGain") -> None:
    """Print what a model wrote down, and why it did not read or keep more."""
    from upwell.app.lessons import OVER_BUDGET, reasons_in_words

    _say_read(gain)
    for reason, number in gain.skipped.items():
        if reason != OVER_BUDGET:
            note(f"upwell: {counted(number, 'session')} {reason}")
    for line in reasons_in_words(gain.dropped):
        note(f"upwell: not kept: {line}")
    for fault in gain.examples:
        detail = f" ({fault.detail})" if fault.detail else ""
        note(f"upwell:   {fault.reason}{detail}: {fault.text}")
    if gain.is_over_budget:
        note("upwell: the budget is spent; run it again later, or with a larger --max-tokens")


def _say_read(gain: "LessonGain") -> None:
    tokens = counted(gain.tokens_in + gain.tokens_out, "token")
    others = (
        (gain.replaced, "of them replacing an earlier one"),
        (gain.taken_back, "taken back"),
        (gain.confirmed, "confirmed"),
    )
    gained = [f", {number} {what}" for number, what in others if number]
    say(
        f"{counted(gain.read, 'session')} read by a model ({tokens}): "
        f"{counted(gain.kept, 'new lesson')}{''.join(gained)}"
    )
    for message in dict.fromkeys(gain.faults):
        note(f"upwell: a session was not read: {message}")
    note_masked(gain.redacted)
