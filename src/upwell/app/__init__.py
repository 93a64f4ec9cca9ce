"""The only package that wires objects together.

`build()` builds a home's app, and `serve()` runs the gateway.
"""

from upwell.app.doctor import examine
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
from upwell.app.wiring import App, Settings, build

__all__ = [
    "App",
    "Settings",
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
