"""The `lessons` commands: what past sessions taught, as a model wrote it down."""

import time
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from upwell.cli.command import Argument, Group, Option
from upwell.cli.output import Json, note, note_masked, say, say_json, table
from upwell.cli.progress import progress
from upwell.cli.session import folder, with_learning
from upwell.ground.text.format import counted, iso
from upwell.ground.uris import memory_id as id_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from upwell.app.lesson_offer import LessonOffer
    from upwell.app.lessons import LessonGain
    from upwell.app.surfacing import LearningApp
    from upwell.replay.transcripts import Transcript

Id = Annotated[str, Argument(metavar="ID", help="An id of `upwell lessons`, or its beginning.")]


def listed(
    every_project: Annotated[
        bool, Option("--every-project", help="Those of every project.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the lessons of this project, newest first."""
    from upwell.ground.project import project_of

    project = None if every_project else project_of(folder())
    found, others = with_learning(lambda app: _found(app, project))
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


async def _found(app: "LearningApp", project: str | None) -> "tuple[list[dict[str, Any]], int]":
    """The lessons of a project; if there are none, how many other projects have."""
    from upwell.app.lesson_book import rows

    found = await rows(app, project)
    return found, 0 if found or project is None else len(await rows(app))


@lessons.command("edit")
def edit(
    lesson: Id,
    text: Annotated[list[str], Argument(metavar="TEXT", help="The new text.")],
) -> None:
    """Change a lesson's text. It is then yours: no later session replaces it."""
    from upwell.app.lesson_book import edit as changed

    memory = with_learning(lambda app: changed(app, id_in(lesson), " ".join(text)))
    say(memory.text)


@lessons.command("pin")
def pin(lesson: Id) -> None:
    """Make a lesson a standing rule, which opens every session of its project."""
    from upwell.app.lesson_book import pin as pinned

    memory = with_learning(lambda app: pinned(app, id_in(lesson)))
    say(memory.text)


@lessons.command("drop")
def drop(lesson: Id) -> None:
    """Move a lesson to the trash. No later session brings it back."""
    from upwell.app.lesson_book import drop as dropped

    memory = with_learning(lambda app: dropped(app, id_in(lesson)))
    say(f"dropped {memory.id}; `upwell restore` brings it back")


@lessons.command("from")
def origin(lesson: Id) -> None:
    """Show where a lesson comes from: its session, and the events that show it."""
    from upwell.app.lesson_book import origin_lines

    for line in with_learning(lambda app: origin_lines(app, id_in(lesson))):
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

    def __call__[T](self, work: "Callable[[LearningApp], Awaitable[T]]", /) -> T: ...


def write_past_lessons(
    runs: Runs, transcripts: "Sequence[Transcript]", offer: "LessonOffer"
) -> None:
    """Have a model read the latest past sessions of an offer, and say what it wrote and how to go
    on."""
    from upwell.app.lesson_book import write_past

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
