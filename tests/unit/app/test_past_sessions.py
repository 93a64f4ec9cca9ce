"""Past sessions for an agent: found, read, and only by the owner in the same project."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.replay import samples

from upwell.app import App, Settings, build, memory
from upwell.ground.types.rpc import Principal

LOCATOR = f"session:{samples.SESSION}#0"
QUERY = {"query": "pump stalls", "sessions": True}
TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


def pump_session(folder: Path, project: Path) -> Path:
    cwd = {"cwd": str(project)}
    found = [{"type": "text", "text": f"A shell blocked the inlet; {TOKEN} opened the door."}]
    error = "make: *** No rule to make target 'dok'.  Stop."
    records = [
        samples.claude_record("user", "10:00:00", "Why does the pump stall?", **cwd),
        samples.claude_call("10:00:01", "Bash", command="make dok"),
        samples.claude_result("10:00:02", error, is_error=True),
        samples.claude_call("10:00:03", "Bash", "t2", command="make dock PUMP=1"),
        samples.claude_result("10:00:04", "ok", "t2"),
        samples.claude_call(
            "10:00:05",
            "Edit",
            "t3",
            file_path=str(project / "pump.py"),
            old_string="slow",
            new_string="fast",
        ),
        samples.claude_result("10:00:06", "ok", "t3"),
        samples.claude_record("assistant", "10:00:07", found, **cwd),
    ]
    folder = folder / ".claude/projects/-code-harbour"
    return samples.lines(folder / f"{samples.SESSION}.jsonl", records)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "harbour"
    folder.mkdir()
    (folder / "pump.py").write_text("fast")
    return folder


@pytest.fixture
async def app(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    monkeypatch.setenv("HOME", str(tmp_path))
    pump_session(tmp_path, project)
    opened = await app_in(tmp_path, project)
    yield opened
    await opened.aclose()


async def app_in(tmp_path: Path, folder: Path) -> App:
    return await build(Settings(home=tmp_path / "home", environment={}, cwd=str(folder)))


async def called(app: App, tool: str, args: dict, principal: Principal | None = None) -> str:
    box = app.toolbox(principal) if principal else app.toolbox()
    return str(json.loads((await box.call(tool, args, "s")).result)["content"][0]["text"])


async def test_an_agent_searches_past_sessions_and_reads_a_turn(app: App) -> None:
    text = await called(app, "memory_search", {"query": "pump stalls", "sessions": True})
    assert "asked      Why does the pump stall?" in text
    assert "concluded  A shell blocked the inlet; [REDACTED:github-pat]" in text
    assert "worked     make dock PUMP=1" in text
    assert "changed    pump.py (stands)" in text
    assert TOKEN not in text
    assert LOCATOR in text
    page = await called(app, "memory_get", {"path": LOCATOR})
    assert "make dock PUMP=1" in page
    assert TOKEN not in page
    nothing = await called(app, "memory_search", {"query": "anchor", "sessions": True})
    assert nothing.startswith("No past session")


async def test_an_error_is_found_by_its_signature(app: App) -> None:
    error = "make: *** No rule to make target 'dok'.  Stop."
    text = await called(app, "memory_search", {"query": error, "sessions": True})
    assert "worked     make dock PUMP=1" in text


async def test_a_search_that_could_not_read_everything_says_so(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "REFRESH_SECONDS", 0.0)
    assert await called(app, "memory_search", QUERY) == memory.INCOMPLETE


async def test_a_guest_sees_no_past_session(app: App) -> None:
    guest = Principal(name="guest", namespaces=("context",))
    assert "only the owner" in await called(app, "memory_search", QUERY, guest)
    assert "Why does" not in await called(app, "memory_get", {"path": LOCATOR}, guest)


async def test_another_project_sees_no_session_of_this_one(app: App, tmp_path: Path) -> None:
    await app.past_sessions().refresh()
    (tmp_path / "other").mkdir()
    other = await app_in(tmp_path, tmp_path / "other")
    try:
        assert (await called(other, "memory_search", QUERY)).startswith("No past session")
        page = await called(other, "memory_get", {"path": LOCATOR})
        assert "belongs to another project" in page
    finally:
        await other.aclose()
