"""Reads the texts to which keys and citations refer: originals of shortened results, memories,
documents and past sessions."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from upwell.app.follow_up import FollowUp
from upwell.app.memory import MemoryApp
from upwell.compress.originals import Originals
from upwell.ground.errors import KeyUnknown
from upwell.ground.project import project_of
from upwell.ground.trace import contained
from upwell.ground.uris import QMD_SCHEME, SESSION_LOCATOR, memory_id, memory_uri
from upwell.tools.recall import LINES_CITED, Viewed, get_tool

if TYPE_CHECKING:
    from upwell.app.past_sessions import SeenSessions


class CitedTexts:
    """The texts that the owner of a home may read by a key or a citation. `cwd` determines the
    project. `viewed()` is called with the memories that were read."""

    def __init__(
        self,
        app: MemoryApp,
        originals: Originals,
        follow_up: FollowUp,
        viewed: Viewed,
        past: "Callable[[], SeenSessions]",
        cwd: str | None,
    ) -> None:
        self._app = app
        self._originals = originals
        self._follow_up = follow_up
        self._viewed = viewed
        self._past = past
        self._cwd = cwd

    async def read(self, key: str, lines: str = "") -> str:
        """The text behind `key`, which is the key of an original, the id of a memory, or a citation
        such as `upwell://memory/ID`. `lines` selects a part of an original, such as `120-180`.

        Raises:
            KeyUnknown: the original expired, was evicted, or never existed.
            UsageError: `lines` is not a range, or there is no such memory, document or session.
        """
        if "://" in key or key.startswith("["):
            return await self._cited(key)
        from upwell.compress.normalise.numbered import line_range, lines_of

        try:
            text = await self._originals.get(key)
        except KeyUnknown:
            if LINES_CITED.search(key):
                return await self._cited(key)
            if not await self._is_memory(memory_id(key)):
                raise
            return await self._cited(memory_uri(memory_id(key)))
        text = f"{lines_of(text, *line_range(lines))}\n" if lines else text
        return await self._follow_up.read_again(key, text)

    async def lines(
        self, citation: str, project: str | None, namespaces: Sequence[str]
    ) -> Sequence[str]:
        """The lines of an imported document, of a document that the program qmd has indexed, or of
        a turn in a past session."""
        if citation.startswith(QMD_SCHEME) and self._app.qmd is not None:
            return await self._app.qmd.lines(citation, project)
        if citation.startswith(SESSION_LOCATOR):
            return (await self._past().page(citation)).split("\n")
        return await self._app.documents.lines(citation, project, namespaces)

    async def search_sessions(self, question: str, limit: int) -> Sequence[str]:
        """The past sessions of this project that match a question, one text for each. A remark may
        follow."""
        return await self._past().search(question, limit)

    async def _is_memory(self, memory_id: str) -> bool:
        if await self._app.memory.get(memory_id) is None:
            with contained("looking for new notes"):
                await self._app.documents.refresh()
        return await self._app.memory.get(memory_id) is not None

    async def _cited(self, citation: str) -> str:
        cited = get_tool(self._app.memory, self.lines, project_of(self._cwd), viewed=self._viewed)
        result = await cited.run({"path": citation}, "")
        return f"{result['content'][0]['text']}\n"
