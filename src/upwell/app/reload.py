"""Taking up a configuration that was changed while the gateway runs: its servers, its limits, and
what it says about tools and budgets. What else was changed is named: it holds after a restart. A
file that is wrong, or still being written, changes nothing."""

import asyncio

from upwell.app.wiring import App
from upwell.config import Config, load
from upwell.gateway.audience import LOGGED
from upwell.gateway.server import Gateway
from upwell.ground.errors import UpwellError
from upwell.ground.files import stamp
from upwell.ground.trace import LOG
from upwell.wire.rawjson import dumps

LOOK_SECONDS = 0.5
TAKEN_UP = frozenset({"server", "tool", "gateway", "compress"})
"""Sections that hold at once."""
AT_ONCE = frozenset({"surface.race_ms", "surface.injection_mode"})
AT_START = frozenset({"compress.original_ttl_seconds", "compress.original_max_bytes"})


async def follow_config(app: App, gateway: Gateway) -> None:
    """Look for changes until cancelled. A change is taken up when the file has been left alone for
    a moment."""
    path = app.config.home.config_file
    known = seen = stamp(path)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = stamp(path)
        if now != known and now == seen:
            known = now
            await _take_up(app, gateway)
        seen = now


async def _take_up(app: App, gateway: Gateway) -> None:
    """Obey it from now on; the workshop is begun anew when it is needed next."""
    try:
        before, fresh = app.config, _fresh(app)
        app.config = fresh
        app.fitter.result_tokens = fresh.result_tokens()
        gateway.obey(fresh.gateway)
        await gateway.exchange(fresh.servers)
        await app.workshop.aclose()
        LOG.info("the configuration was changed and holds now")
    except (UpwellError, OSError) as error:
        said = f"the configuration was changed and is wrong; the old one holds: {error}"
        await _tell(gateway, "error", said)
        return
    if waiting := waits_for_restart(before, fresh):
        said = f"the configuration was changed; only after a restart holds: {', '.join(waiting)}"
        await _tell(gateway, "warning", said)


def waits_for_restart(before: Config, fresh: Config) -> list[str]:
    """The keys that were changed and are read at the start only, in order."""
    settings = [
        {key: entry.value for key, entry in config.values.items()} for config in (before, fresh)
    ]
    old, new = settings
    changed = {
        key for key in {*old, *new} if key not in old or key not in new or old[key] != new[key]
    }
    return sorted(key for key in changed if not _holds_at_once(key))


def _holds_at_once(key: str) -> bool:
    section = key.partition(".")[0]
    return key in AT_ONCE or (section in TAKEN_UP and key not in AT_START)


async def _tell(gateway: Gateway, level: str, said: str) -> None:
    LOG.warning("%s", said)
    told = {"level": level, "logger": "upwell", "data": said}
    await gateway.audience.announce(LOGGED, dumps(told))


def _fresh(app: App) -> Config:
    """The configuration as it is now.

    Raises:
        ConfigError: it is wrong.
    """
    return load(app.config.home.root, environment=app.config.environment)
