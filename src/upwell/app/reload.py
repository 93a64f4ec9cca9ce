"""Taking up a configuration that was changed while the gateway runs: its servers and what it says
about tools. A file that is wrong, or still being written, changes nothing."""

import asyncio
import os

from upwell.app.wiring import App
from upwell.config import Config, load
from upwell.gateway.audience import LOGGED
from upwell.gateway.server import Gateway
from upwell.ground.errors import UpwellError
from upwell.ground.trace import LOG
from upwell.wire.rawjson import dumps

LOOK_SECONDS = 0.5

Stamp = tuple[int, int, int] | None


async def follow_config(app: App, gateway: Gateway) -> None:
    """Look for changes until cancelled. A change is taken up when the file has been left alone for
    a moment."""
    path = str(app.config.home.config_file)
    known = seen = _stamp(path)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = _stamp(path)
        if now != known and now == seen:
            known = now
            await _take_up(app, gateway)
        seen = now


async def _take_up(app: App, gateway: Gateway) -> None:
    """Obey it from now on; the workshop is begun anew when it is needed next."""
    try:
        fresh = _fresh(app)
        app.config = fresh
        await app.workshop.aclose()
        await gateway.exchange(fresh.servers)
        LOG.info("the configuration was changed and holds now")
    except (UpwellError, OSError) as error:
        said = f"the configuration was changed and is wrong; the old one holds: {error}"
        LOG.warning("%s", said)
        told = {"level": "error", "logger": "upwell", "data": said}
        await gateway.audience.announce(LOGGED, dumps(told))


def _fresh(app: App) -> Config:
    """The configuration as it is now.

    Raises:
        ConfigError: it is wrong.
    """
    return load(app.config.home.root, environment=app.config.environment)


def _stamp(path: str) -> Stamp:
    """What tells that a file was written."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino
