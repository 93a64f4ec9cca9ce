"""Recall from a store whose memories are also files."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from upwell.ground.clock import Deadline
from upwell.ground.types.memory import Found, Query
from upwell.memory.base import Store
from upwell.memory.recall import StoreRecall

if TYPE_CHECKING:
    from upwell.memory.folder.sync import MemoryFolder


class KeptRecall(StoreRecall):
    """`Recall` over a store. If someone waits for the result, changed files are read first."""

    def __init__(self, store: Store, folder: "Callable[[], MemoryFolder | None]") -> None:
        super().__init__(store)
        self._folder = folder

    async def search(self, query: Query, deadline: Deadline) -> Found:
        """As `StoreRecall.search()`."""
        if query.awaited and (folder := self._folder()):
            await folder.catch_up(deadline)
        return await super().search(query, deadline)
