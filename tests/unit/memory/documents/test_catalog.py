"""The index of files: opened once, however many ask at once."""

import asyncio
from pathlib import Path

from upwell.memory.base import Store
from upwell.memory.documents.catalog import DocumentCatalog
from upwell.testing import ManualClock


async def test_searches_at_once_open_one_index(tmp_path: Path) -> None:
    opened: list[Store] = []
    path = tmp_path / "index.db"
    path.touch()
    catalog = DocumentCatalog(path, opened=opened.append, clock=ManualClock())
    stores = await asyncio.gather(*(catalog.store() for _ in range(5)))
    assert len(opened) == 1
    assert set(stores) == set(opened)
    await catalog.aclose()
