"""The only room that constructs: `build` makes an app of a home, `serve` runs the gateway."""

from upwell.app.running import (
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
    "build",
    "decisions",
    "examine",
    "forget_answers",
    "pause",
    "resume",
    "run_workshop",
    "serve",
]
