"""An app with everything, in an empty home."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from upwell.app import App, Settings, build


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    opened = await build(Settings(home=tmp_path / "home", environment={}))
    yield opened
    await opened.aclose()
