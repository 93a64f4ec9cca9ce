"""The store that stands in where the memory cannot be opened: says why, acknowledges nothing."""

import builtins
from collections.abc import Mapping, Sequence
from typing import NoReturn

from upwell.ground.errors import StoreError
from upwell.ground.limits import Deadline
from upwell.ground.types import Hit, Memory, Ping, Query, Scope
from upwell.memory.base import Added


class AbsentStore:
    """Raises `error` at every use, so that calls go on and nothing is lost unnoticed."""

    name = "absent"

    def __init__(self, error: StoreError) -> None:
        self._error = error

    async def add(self, memories: Sequence[Memory]) -> builtins.list[Added]:
        self._refuse()

    async def get(self, memory_id: str) -> Memory | None:
        self._refuse()

    async def update(self, memory: Memory) -> None:
        self._refuse()

    async def delete(self, memory_id: str) -> bool:
        self._refuse()

    async def restore(self, memory_id: str) -> bool:
        self._refuse()

    async def trash(self, *, limit: int = 100) -> Sequence[Memory]:
        self._refuse()

    async def purge(self, memory_id: str | None = None) -> int:
        self._refuse()

    async def pinned(self, scope: Scope, *, limit: int = 50) -> Sequence[Memory]:
        self._refuse()

    async def superseded(self, ids: Sequence[str]) -> Mapping[str, str]:
        self._refuse()

    async def list(self, scope: Scope, *, limit: int = 100, offset: int = 0) -> Sequence[Memory]:
        self._refuse()

    async def search(self, query: Query, deadline: Deadline) -> builtins.list[Hit]:
        self._refuse()

    async def ping(self) -> Ping:
        return Ping(ok=False, detail=self._error.message, hint=self._error.hint)

    def _refuse(self) -> NoReturn:
        raise self._error
