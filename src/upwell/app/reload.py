"""Hot reload of the configuration while the gateway runs: servers, limits, tools and budgets. Other
changed keys are reported, and take effect after a restart. A file with a mistake, or one that is
still being written, changes nothing.
"""

import asyncio

from upwell.app.wiring import App
from upwell.config import Config, load
from upwell.gateway.clients import LOGGED
from upwell.gateway.server import Gateway
from upwell.ground.errors import UpwellError
from upwell.ground.files import stamp
from upwell.ground.trace import LOG
from upwell.wire.rawjson import dumps

LOOK_SECONDS = 0.5
SECTIONS_AT_ONCE = frozenset({"server", "tool", "gateway", "compress"})
"""Sections of the configuration whose changes take effect at once, except `KEYS_AT_START`."""
KEYS_AT_ONCE = frozenset({"surface.race_ms", "surface.injection_mode"})
KEYS_AT_START = frozenset({"compress.original_ttl_seconds", "compress.original_max_bytes"})


async def follow_config(app: App, gateway: Gateway) -> None:
    """Watch `config.toml` until cancelled. A change is adopted once the file has stayed the same
    for `LOOK_SECONDS`."""
    path = app.config.home.config_file
    known = seen = stamp(path)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = stamp(path)
        if now != known and now == seen:
            known = now
            await _apply_change(app, gateway)
        seen = now


async def _apply_change(app: App, gateway: Gateway) -> None:
    """Apply the changed configuration. The worker processes restart with the next large result."""
    try:
        before, fresh = app.config, _fresh(app)
        app.config = fresh
        app.fitter.result_tokens = fresh.result_tokens()
        gateway.apply_options(fresh.gateway)
        await gateway.replace_servers(fresh.servers)
        await app.worker_pool.aclose()
        LOG.info("the changed configuration is in effect")
    except (UpwellError, OSError) as error:
        message = f"the changed configuration has a mistake; the old one stays in effect: {error}"
        await _tell(gateway, "error", message)
        return
    if changed_keys := keys_for_restart(before, fresh):
        message = (
            f"the configuration was changed; restart upwell to apply {', '.join(changed_keys)}"
        )
        await _tell(gateway, "warning", message)


def keys_for_restart(before: Config, fresh: Config) -> list[str]:
    """The changed keys that are read only at the start, in order."""
    settings = [
        {key: entry.value for key, entry in config.values.items()} for config in (before, fresh)
    ]
    old, new = settings
    changed = {
        key for key in {*old, *new} if key not in old or key not in new or old[key] != new[key]
    }
    return sorted(key for key in changed if not _applies_at_once(key))


def _applies_at_once(key: str) -> bool:
    section = key.partition(".")[0]
    return key in KEYS_AT_ONCE or (section in SECTIONS_AT_ONCE and key not in KEYS_AT_START)


async def _tell(gateway: Gateway, level: str, message: str) -> None:
    LOG.warning("%s", message)
    notification = {"level": level, "logger": "upwell", "data": message}
    await gateway.audience.announce(LOGGED, dumps(notification))


def _fresh(app: App) -> Config:
    """The configuration of the app's home, read again.

    Raises:
        ConfigError: the configuration has a mistake.
    """
    return load(app.config.home.root, environment=app.config.environment)
