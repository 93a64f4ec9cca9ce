"""Agents' feedback, and the statistics, through the toolbox of an app."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from upwell import Cue, Surfacing
from upwell.app import App, Settings, build
from upwell.app.wiring import known_tool
from upwell.gateway.options import ServerOptions
from upwell.ground.errors import UsageError
from upwell.ground.types.rpc import Principal

SERVERS = [ServerOptions(name="files", command="x"), ServerOptions(name="git", command="x")]


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    flags = {"surface.moments": "all"}
    app = await build(Settings(home=tmp_path, environment={}, flags=flags))
    facts = [{"id": n, "text": f"Winch {n} is greased", "paths": ["winch.py"]} for n in "abc"]
    await app.memory.add_many(facts)
    yield app
    await app.aclose()


async def said(app: App) -> Surfacing:
    cue = Cue(door="tool", tool="fs__open", args={"path": "winch.py"}, session="s")
    outcome = await app.surfacer.surface(cue)
    assert isinstance(outcome, Surfacing)
    return outcome


async def call(app: App, name: str, **args: Any) -> tuple[bool, str]:
    reply = json.loads((await app.toolbox().call(name, args, "s")).result)
    return reply.get("isError", False), reply["content"][0]["text"]


async def rated(app: App) -> dict[str, str]:
    await app.learning.counts.flush()
    return {
        count.kind: count.number
        for count in await app.learning.counts.since(1)
        if count.event == "rating"
    }


async def test_several_ratings_in_one_call(app: App) -> None:
    surfacing = await said(app)
    first, second, *_ = surfacing.hits
    ratings = [
        {"memory_id": first.memory.id, "rating": "helpful"},
        {"memory_id": f"upwell://memory/{second.memory.id}", "rating": "not_relevant"},
    ]
    failed, text = await call(app, "feedback", surfacing_id=surfacing.id, ratings=ratings)
    assert not failed, text
    assert text == "noted 1 helpful, 1 not_relevant, surfaced at fs__open"
    assert await rated(app) == {"helpful": 1, "not_relevant": 1}


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"ratings": [{"memory_id": "a", "rating": "helpful"}], "rating": "helpful"}, "not both"),
        ({}, "needs a rating"),
        ({"ratings": [{"rating": "helpful"}]}, "needs a memory_id"),
        ({"ratings": [{"memory_id": "a", "rating": "great"}]}, "a rating is one of helpful"),
        ({"ratings": ["helpful"]}, "a rating is one of"),
        ({"ratings": [{"memory_id": "a", "rating": "helpful"}] * 51}, "at most 50"),
        ({"ratings": [{"memory_id": 7, "rating": "helpful"}]}, "needs a memory_id"),
        (
            {"ratings": [{"memory_id": m, "rating": "helpful"} for m in ("a", "stranger")]},
            "stranger",
        ),
    ],
)
async def test_one_wrong_rating_stores_none(app: App, more: dict[str, Any], complaint: str) -> None:
    surfacing = await said(app)
    failed, text = await call(app, "feedback", surfacing_id=surfacing.id, **more)
    assert failed
    assert complaint in text
    assert await rated(app) == {}


@pytest.mark.parametrize(
    ("server", "tool", "complaint"),
    [("filez", "read", "the servers are files"), ("files", "raed", "did you mean read"),
     ("files", "a\nb", "has no tool"), ("", "read", "no server is called")],
)  # fmt: skip
def test_a_report_on_an_unknown_tool_is_refused(server: str, tool: str, complaint: str) -> None:
    with pytest.raises(UsageError) as raised:
        known_tool(SERVERS, server, tool, ["read", "write"])
    assert complaint in str(raised.value)


def test_tools_of_servers_that_are_still_starting_and_of_agents_are_known() -> None:
    assert known_tool(SERVERS, "git", "log") == "git__log"
    assert known_tool(SERVERS, "files", "read", ["read"]) == "files__read"
    assert known_tool(SERVERS, "claude", "Bash") == "claude__Bash"


async def test_a_report_about_an_unknown_server_leaves_no_trace(app: App) -> None:
    failed, text = await call(app, "compression_feedback", server="x", tool="y", kind="too_long")
    assert failed
    assert "no server is called 'x' (no server is configured)" in text
    assert await app.budgets.learned() == []


async def test_a_report_says_whether_it_moves_the_budget(app: App) -> None:
    for kind, effect in (("truncated", "next session"), ("other", "upwell stats tune")):
        report = {"server": "claude", "tool": "Bash", "kind": kind}
        failed, text = await call(app, "compression_feedback", **report)
        assert (failed, effect in text) == (False, True)


async def test_statistics_are_a_tool_of_the_owner(app: App) -> None:
    await said(app)
    failed, text = await call(app, "stats", days=1)
    assert not failed
    assert "upwell looked once today and spoke once" in text
    assert (await call(app, "stats", days=0))[0]
    ada = app.toolbox(Principal(name="ada", namespaces=("context",)))
    assert "stats" not in [tool["name"] for tool in ada.listed()]
