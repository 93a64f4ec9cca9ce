"""The list of sessions on the dashboard."""

from pathlib import Path

from upwell.app import App, Settings, build
from upwell.app.dashboard.sessions import sessions
from upwell.ground.types.cue import Cue
from upwell.hosts.base import PROBE_SESSIONS


async def listed(app: App) -> list[str]:
    return [session["id"] for session in (await sessions(app, {}))["sessions"]]


async def test_sessions_in_which_setup_tried_a_hook_are_not_listed(tmp_path: Path) -> None:
    app = await build(Settings(home=tmp_path, environment={}))
    try:
        for name in (f"{PROBE_SESSIONS}1a2b", "monday"):
            await app.surfacer.surface(Cue(door="prompt", text="Where are prices?", session=name))
        assert await listed(app) == ["monday"]
    finally:
        await app.aclose()
