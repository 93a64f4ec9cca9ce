"""Past sessions, for the command line and for upwell's MCP tools."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import UsageError
from upwell.ground.home import Home
from upwell.ground.project import is_seen
from upwell.replay.transcripts import Transcript, transcripts_of_user
from upwell.sessions.answer import Answer, answer_of
from upwell.sessions.index import Match, Progress, Scope, SessionIndex
from upwell.sessions.render import lines_of, page_of
from upwell.sessions.tables import Listed

INCOMPLETE = "[upwell] older sessions are not indexed yet; the next search continues with them"
REFRESH_SECONDS = 2.0
"""A search by an agent first reads new transcripts for at most this long. The next search continues
from there.
"""


class PastSessions:
    """Searches this user's sessions with every agent, and the SpecStory histories in the folder
    `cwd`.
    """

    def __init__(
        self,
        home: Home,
        environment: Mapping[str, str],
        cwd: str | None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        transcripts: Callable[[], Sequence[Transcript]] | None = None,
    ) -> None:
        folder = Path(cwd) if cwd else Path.home()
        own = partial(transcripts_of_user, Path.home(), folder, None)
        self._environment = environment
        self._index = SessionIndex(home.sessions_db, transcripts or own, clock=clock)

    async def refresh(
        self, show: Progress = lambda done, total: None, seconds: float | None = None
    ) -> bool:
        """Index the new parts of the transcripts. Returns False if time ran out.

        Raises:
            StoreError: the index cannot be written.
        """
        return await self._index.refresh(show, seconds)

    async def counts(self) -> tuple[int, int]:
        """The number of sessions and of turns in the index."""
        return await self._index.counts()

    async def listed(
        self, scope: Scope, before: tuple[float, str] | None, limit: int
    ) -> list[Listed]:
        """Sessions by the time of their last turn, newest first; `before` continues a list.

        Raises:
            StoreError: the index cannot be read.
        """
        return await self._index.listed(scope, before, limit)

    async def choices(self) -> tuple[list[str], list[str]]:
        """The projects and the agents of the sessions."""
        return await self._index.choices()

    async def known_names(self, names: Sequence[str]) -> set[str]:
        """The given names that belong to a session in the index."""
        return await self._index.known_names(names)

    async def recorded(self, name: str) -> list[Match]:
        """Every turn of the session with this name, oldest first."""
        return await self._index.recorded(name)

    async def matches(self, question: str, scope: Scope, limit: int) -> list[Match]:
        """The turns most relevant to the question, best first, with the excerpts of the index.

        Raises:
            StoreError: the index cannot be read.
        """
        return await self._index.search(question, scope, limit)

    async def search(self, question: str, scope: Scope, limit: int) -> list[Answer]:
        """The sessions most relevant to the question, best first.

        Raises:
            StoreError: the index cannot be read.
        """
        return await self._answers(await self._index.search(question, scope, limit), question)

    async def changes(self, path: str, cwd: str, scope: Scope, limit: int) -> list[Answer]:
        """The turns that changed a file, newest first. If no turn changed the file under its
        absolute path, `path` is looked up as given, because transcripts from another machine
        contain other folders.

        Raises:
            StoreError: the index cannot be read.
        """
        name = os.path.normpath(path)
        absolute = os.path.normpath(os.path.join(cwd, path))
        matches = await self._index.changes(absolute, scope, limit)
        if not matches:
            matches = await self._index.changes(name, scope, limit)
        return await self._answers(matches, os.path.basename(name), file=name.lstrip("/"))

    async def turn(self, locator: str) -> Answer:
        """The turn with this locator.

        Raises:
            UsageError: no session matches, or several do.
            StoreError: the index cannot be read.
        """
        match = await self._index.located(locator)
        return await asyncio.to_thread(partial(answer_of, match, "", self._environment, whole=True))

    async def aclose(self) -> None:
        await self._index.aclose()

    async def _answers(
        self, matches: Sequence[Match], question: str, file: str = ""
    ) -> list[Answer]:
        def read() -> list[Answer]:
            return [answer_of(match, question, self._environment, file=file) for match in matches]

        return await asyncio.to_thread(read)


class SeenSessions:
    """The past sessions that an agent working in `project` may see, as text."""

    def __init__(self, past: PastSessions, project: str | None) -> None:
        self._past = past
        self._project = project

    async def search(self, question: str, limit: int) -> Sequence[str]:
        """The sessions most relevant to the question, a few lines for each, and a remark if some
        transcripts have not been read yet.
        """
        is_complete = await self._past.refresh(seconds=REFRESH_SECONDS)
        answers = await self._past.search(question, Scope(project=self._project), limit)
        texts = ["\n".join(lines_of(answer, question)) for answer in answers]
        return texts if is_complete else [*texts, INCOMPLETE]

    async def page(self, locator: str) -> str:
        """A whole turn.

        Raises:
            UsageError: this project has no session with that locator.
        """
        answer = await self._past.turn(locator)
        if not is_seen(answer.match.session.project, self._project):
            raise UsageError(f"{locator} belongs to another project", hint="open it from there")
        return page_of(answer)
