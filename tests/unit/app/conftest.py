"""Apps with everything, in an empty home."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from upwell.app import App, Settings, build
from upwell.testing import ManualClock


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    opened = await build(Settings(home=tmp_path / "home", environment={}))
    yield opened
    await opened.aclose()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_767_000_000.0)


@pytest.fixture
async def timed(tmp_path: Path, clock: ManualClock) -> AsyncIterator[App]:
    """An app whose time the test sets."""
    opened = await build(Settings(home=tmp_path / "home", environment={}, clock=clock))
    yield opened
    await opened.aclose()
