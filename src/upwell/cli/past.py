"""The command `recall --sessions`."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct

from upwell.cli.command import Option
from upwell.cli.output import note, say, say_json
from upwell.cli.progress import progress
from upwell.cli.session import folder, with_memory
from upwell.cli.times import seconds_of
from upwell.ground.errors import StoreError, UsageError
from upwell.ground.project import project_of
from upwell.ground.text.format import counted
from upwell.ground.uris import SESSION_LOCATOR

if TYPE_CHECKING:
    from upwell.app import MemoryApp
    from upwell.sessions.answer import Answer

MAX_SESSIONS = 5
PastSessions = Annotated[
    bool,
    Option(
        "--sessions",
        help="Search past sessions for a question or an error, or print the turn at a locator.",
    ),
]
FileOption = Annotated[
    str | None,
    Option("--file", metavar="PATH", help="With --sessions: only those that changed this file."),
]
ProjectOption = Annotated[
    Path | None,
    Option("--project", metavar="DIR", help="With --sessions: only in this project."),
]
HostOption = Annotated[str | None, Option("--host", help="With --sessions: only of this agent.")]
SinceOption = Annotated[
    str | None,
    Option("--since", help="With --sessions: only within this time, for example 30d."),
]


class Filters(Struct, frozen=True):
    """The options that restrict a search."""

    project: Path | None
    host: str | None
    since: str | None


def recall_sessions(
    question: str | None, file: str | None, filters: Filters, limit: int | None, *, as_json: bool
) -> None:
    """Search past sessions by a question or by a file, or read one turn by its locator."""
    from upwell.sessions.render import described, lines_of, page_of

    if (question is None) == (file is None):
        raise UsageError(
            "--sessions needs a question, or --file PATH", hint="upwell recall --sessions QUESTION"
        )
    with progress("reading sessions") as show:

        async def work(app: "MemoryApp") -> "list[Answer]":
            past, failure = app.past_sessions(), ""
            try:
                await past.refresh(show)
            except StoreError as error:
                failure = str(error)
            answers = await _answers(app, question, file, filters, limit or MAX_SESSIONS)
            if failure:
                note(f"upwell: the index of sessions is out of date: {failure}")
            return answers

        answers = with_memory(work)
    if as_json:
        say_json({"sessions": [described(answer) for answer in answers]})
    elif question is not None and question.startswith(SESSION_LOCATOR):
        say(page_of(answers[0]))
    elif answers:
        say("\n\n".join("\n".join(lines_of(answer, question or "")) for answer in answers))
    else:
        note("No past session found.")


async def _answers(
    app: "MemoryApp", question: str | None, file: str | None, filters: Filters, limit: int
) -> "list[Answer]":
    from upwell.sessions.answer import answers_to, changes_of, turn_at
    from upwell.sessions.index import SessionScope

    environment = app.config.environment
    here, past = folder(), app.past_sessions()
    scope = SessionScope(
        project=project_of(str(filters.project)) if filters.project else None,
        host=filters.host,
        since=time.time() - seconds_of(filters.since) if filters.since else 0.0,
        here=project_of(here),
    )
    if file is not None:
        path = os.path.expanduser(file)
        return await changes_of(past, path, here or "/", scope, limit, environment)
    assert question is not None
    if question.startswith(SESSION_LOCATOR):
        return [await turn_at(past, question, environment)]
    return await answers_to(past, question, scope, limit, environment)


def index_sessions() -> None:
    """Bring the index of past sessions up to date, and print its size."""
    with progress("indexing sessions") as show:

        async def work(app: "MemoryApp") -> tuple[int, int]:
            await app.past_sessions().refresh(show)
            return await app.past_sessions().counts()

        sessions, turns = with_memory(work)
    say(f"indexed {counted(sessions, 'session')} with {counted(turns, 'turn')} for `recall`")
