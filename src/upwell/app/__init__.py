"""The only room that constructs: `build` makes an app of a home, `serve` runs the gateway."""

from upwell.app.running import (
    back_up,
    decisions,
    examine,
    forget_answers,
    pause,
    resume,
    run_workshop,
    serve,
)
from upwell.app.wiring import App, Settings, build

__all__ = [
    "App",
    "Settings",
    "back_up",
    "build",
    "decisions",
    "examine",
    "forget_answers",
    "pause",
    "resume",
    "run_workshop",
    "serve",
]
