"""Past sessions, for the command line and for upwell's MCP tools."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from upwell.ground.clock import Clock
from upwell.ground.errors import UsageError
from upwell.ground.home import Home
from upwell.ground.project import is_seen
from upwell.replay.transcripts import transcripts_of_user
from upwell.sessions.answer import answers_to, turn_at
from upwell.sessions.index import SessionIndex, SessionScope
from upwell.sessions.render import lines_of, page_of

INCOMPLETE = "[upwell] older sessions are not indexed yet; the next search continues with them"
REFRESH_SECONDS = 2.0
"""A search by an agent first reads new transcripts for at most this long. The next search continues
from there.
"""


def index_of_user(
    home: Home, cwd: str | None, excludes: Callable[[str], bool], clock: Clock
) -> SessionIndex:
    """The index of this user's sessions with every agent, and of the SpecStory histories in the
    folder `cwd`. Folders for which `excludes()` is true are left out."""
    folder = Path(cwd) if cwd else Path.home()
    transcripts = partial(transcripts_of_user, Path.home(), folder, None)
    return SessionIndex(home.sessions_db, transcripts, excludes=excludes, clock=clock)


class SeenSessions:
    """The past sessions that an agent working in `project` may see, as text. git runs with the
    variables in `environment`."""

    def __init__(
        self, index: SessionIndex, project: str | None, environment: Mapping[str, str]
    ) -> None:
        self._index = index
        self._project = project
        self._environment = environment

    async def search(self, question: str, limit: int) -> Sequence[str]:
        """A few lines for each of the sessions most relevant to the question. The last text is a
        remark if some transcripts have not been read yet.
        """
        is_complete = await self._index.refresh(seconds=REFRESH_SECONDS)
        scope = SessionScope(project=self._project)
        answers = await answers_to(self._index, question, scope, limit, self._environment)
        texts = ["\n".join(lines_of(answer, question)) for answer in answers]
        return texts if is_complete else [*texts, INCOMPLETE]

    async def page(self, locator: str) -> str:
        """The whole text of a turn.

        Raises:
            UsageError: this project has no session with that locator.
        """
        answer = await turn_at(self._index, locator, self._environment)
        if not is_seen(answer.match.session.project, self._project):
            raise UsageError(f"{locator} belongs to another project", hint="open it from there")
        return page_of(answer)
