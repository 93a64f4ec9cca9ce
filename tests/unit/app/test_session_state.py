"""One `SessionState` for everything that lives as long as a session."""

from pathlib import Path

from upwell.app import Settings, build


async def test_surfacing_pending_calls_and_http_sessions_share_one_state(tmp_path: Path) -> None:
    app = await build(Settings(home=tmp_path / "home", environment={}))
    gateway = app.gateway()
    state = app._session_state
    assert app.surfacer._pace._state is state
    assert app.surfacer._late_hits._state is state
    assert gateway.router._pending_calls._session_state is state
    assert gateway.http()._sessions._state is state
    await app.aclose()
