"""The only package that wires objects together.

`build()` builds a home's app, and `serve()` runs the gateway. Each name is loaded on use, because
a command about memories needs a fraction of the package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from upwell.app.doctor import examine
    from upwell.app.memory import MemoryApp
    from upwell.app.running import (
        back_up,
        clear_cached_responses,
        config_mistakes,
        decisions,
        pause,
        resume,
        run_worker,
        serve,
    )
    from upwell.app.store import Settings, StoreApp
    from upwell.app.wiring import App, build

__all__ = [
    "App",
    "MemoryApp",
    "Settings",
    "StoreApp",
    "back_up",
    "build",
    "clear_cached_responses",
    "config_mistakes",
    "decisions",
    "examine",
    "pause",
    "resume",
    "run_worker",
    "serve",
]
_MODULES = {
    "App": "wiring",
    "build": "wiring",
    "MemoryApp": "memory",
    "Settings": "store",
    "StoreApp": "store",
    "examine": "doctor",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'running')}"), name)
