"""One gateway for all tests of names in tests/NAMES.md, and homes whose clock the tests move."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.doors.address import Address, Conversation, serving
from tests.doors.conftest import script, write_config
from upwell import Cue, Skip, Surfacing
from upwell.app import App, Settings, build
from upwell.testing import ManualClock

FACTS = {
    "walnut": "The walnut cabinet keeps spare hinges for the greenhouse door",
    "juniper": "Juniper cuttings root best below sixteen degrees",
    "saffron": "Saffron invoices are paid in Lisbon, never before the harvest",
    "pewter": "Pewter tankards tarnish when the cellar humidity passes sixty percent",
    "obsidian": "Obsidian blades chip if the grinding wheel exceeds forty rotations",
    "cobalt": "Cobalt glaze needs a second firing at nine hundred degrees",
    "magenta": "Magenta toner belongs to the printer beside the staircase",
}
"""Memories with no searchable word in common."""
NAMESPACES = {"walnut": "decisions", "juniper": "patterns", "saffron": "learnings"}


def lines() -> str:
    """`FACTS` in the format of `upwell import`."""
    return "\n".join(
        json.dumps(
            {
                "id": word,
                "text": text,
                "namespace": NAMESPACES.get(word, "context"),
                "tags": [word],
                "paths": [f"src/{word}.py"],
            }
        )
        for word, text in FACTS.items()
    )


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the gateway."""
    return tmp_path_factory.mktemp("seeds") / "home"


@pytest.fixture(scope="session")
def address(served: Path) -> Iterator[Address]:
    """`upwell serve --http` over `FACTS` and one server. Memories may surface at every moment."""
    home, folder = served, served.parent
    tables: dict[str, Mapping[str, Any]] = {
        "surface": {"moments": "all", "race_ms": 5000},
        "compress": {"max_result_tokens": 600},
        'tool."up__big_markdown"': {
            "compress": {"strategy": "progressive"},
            "surface": {"injection_mode": "section"},
        },
        'tool."up__big_json"': {"compress": {"strategy": "selective"}},
        'tool."up__received"': {"surface": {"injection_mode": "prepend"}},
        'tool."up__numbers"': {"surface": {"injection_mode": "section"}},
    }
    write_config(home, {"up": script("upstream", "--state", str(folder))}, **tables)
    with serving(home, folder / "serve.log", STM_SHOW_STATUS="TRUE") as address:
        listed = folder / "facts.jsonl"
        listed.write_text(lines())
        upwell_in(home, "import", str(listed))
        yield address


def upwell_in(home: Path, *args: str) -> str:
    """The output of one command over this home."""
    done = subprocess.run(
        [sys.executable, "-m", "upwell", *args],
        env={"PATH": os.environ["PATH"], "HOME": str(home.parent), "UPWELL_HOME": str(home)},
        cwd=home.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def agent(address: Address) -> Conversation:
    """An MCP session of its own for each test."""
    return address.begin()


_NUMBERS = count(1)


@pytest.fixture
def hook(address: Address) -> Callable[..., dict[str, Any]]:
    """`hook("PostToolUse", …)` sends one event of Claude Code. Each test has its own session."""
    session = f"hook-{next(_NUMBERS)}"

    def send(event: str, **fields: Any) -> dict[str, Any]:
        payload = {"hook_event_name": event, "session_id": session, "cwd": "/", **fields}
        status, _, answer = address.send("POST", payload, path="/hook/claude")
        assert status == 200, answer
        return dict(answer)

    return send


class Bench:
    """An app in this process, and its clock."""

    def __init__(self, app: App, clock: ManualClock) -> None:
        self.app = app
        self.clock = clock

    async def say(self, text: str = "", door: str = "prompt", **cue: Any) -> Surfacing | Skip:
        """What upwell says to a cue. The session is `s` by default."""
        return await self.app.surfacer.surface(
            Cue(**{"door": door, "text": text, "session": "s", **cue})
        )

    async def use(self, tool: str, /, **args: Any) -> Surfacing | Skip:
        """What upwell says beside a call of `tool`."""
        return await self.say(door="tool", tool=tool, args=args)


Lab = Callable[..., AbstractAsyncContextManager[Bench]]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """`async with lab({"surface.min_score": 0.9}) as bench` builds the app of a new home with
    `FACTS` in it."""

    @asynccontextmanager
    async def opened(
        flags: Mapping[str, Any] | None = None, *, facts: bool = True
    ) -> AsyncIterator[Bench]:
        clock = ManualClock(1_700_000_000.0)
        settings = Settings(
            home=tmp_path / "lab",
            environment={},
            flags={"surface.moments": "all", **(flags or {})},
            clock=clock,
        )
        app = await build(settings)
        try:
            if facts:
                await app.memory.add_many(map(json.loads, lines().splitlines()))
            yield Bench(app, clock)
        finally:
            await app.aclose()

    return opened


@pytest.fixture
def decisions(served: Path) -> Callable[[], list[dict[str, Any]]]:
    """`decisions()` lists the stored decisions of the gateway's home."""
    return lambda: list(json.loads(upwell_in(served, "explain", "--json"))["decisions"])
