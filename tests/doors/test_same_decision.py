"""Every door gives the same decision for the same cue, and the digest of `memory_context` follows
seed 003 (tests/NAMES.md) byte for byte.
"""

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.conftest import Upwell
from tests.doors.conftest import Gateway, script
from tests.doors.reading import everything, texts
from upwell import Cue, Skip, Surfacing
from upwell.app import Settings, build
from upwell.ground.names import MEMORY_URI
from upwell.tools.recall import described

FACTS = {
    "src/billing/settle.py": "The settlement job runs before midnight UTC, or refunds double.",
    "src/tides/feed.py": "The tide feed answers 200 with an empty body on public holidays.",
    "web/map.ts": "Safari keeps the map canvas alive after unmount, so it is disposed by hand.",
}
MESSAGES = [
    "When must the settlement job run?",
    "What does the tide feed answer on public holidays?",
    "Why is the map canvas disposed by hand in Safari?",
    "How do I proof sourdough overnight?",
    "settlement",
    "thanks a lot!",
    "/status",
    "",
]
STABLE = ("applicable", "found", "digest", "confidence", "queriesRun", "intent", "skippedReason")


@pytest.fixture
def remembered(upwell: Upwell, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for path, fact in FACTS.items():
        assert upwell("remember", fact, "--path", path).code == 0


def decided(home: Path, cues: list[Cue]) -> list[Surfacing | Skip]:
    """The library's own decision about each cue, without a delivery."""

    async def work() -> list[Surfacing | Skip]:
        app = await build(Settings(home=home, environment={}))
        try:
            return [await app.surfacer.surface(cue) for cue in cues]
        finally:
            await app.aclose()

    return asyncio.run(work())


def stable(shown: dict) -> dict:
    """The part of a decision that is equal every time."""
    return {key: shown.get(key) for key in STABLE} | {
        "entries": [entry["id"] for entry in shown["entries"]]
    }


def test_messages_through_every_door(
    upwell: Upwell, gateway: Gateway, home: Path, tmp_path: Path, remembered: None
) -> None:
    peer = gateway()
    outcomes = decided(home, [Cue(door="ask", text=m, cwd=str(tmp_path)) for m in MESSAGES])
    surfacings = 0
    for message, outcome in zip(MESSAGES, outcomes, strict=True):
        expected = stable(json.loads(json.dumps(described(outcome))))
        by_command = upwell("context", message, "--format", "json").json
        by_tool = peer.call("upwell__memory_context", message=message, format="json")
        assert stable(by_command) == expected, message
        assert stable(json.loads(texts(by_tool)[0])) == expected, message
        digest = texts(peer.call("upwell__memory_context", message=message))
        assert digest == [expected["digest"]]
        surfacings += isinstance(outcome, Surfacing)
    assert surfacings == 3


@pytest.mark.parametrize("path", [*FACTS, "docs/garden/tulips.txt"])
def test_a_tool_call_through_the_gateway(
    gateway: Gateway, home: Path, tmp_path: Path, remembered: None, path: str
) -> None:
    patient = {"race_ms": 20_000, "timeout_seconds": 20}
    peer = gateway({"up": script("upstream")}, surface=patient)
    peer.wait_for_tools("up__read")
    cue = Cue(door="tool", tool="up__read", args={"path": path}, cwd=str(tmp_path))
    (outcome,) = decided(home, [cue])
    shown = everything(peer.call("up__read", path=path))
    answer = re.findall(re.escape(MEMORY_URI) + r"([\w-]+)\]", shown)
    ids = [m.id for m in outcome.memories] if isinstance(outcome, Surfacing) else []
    assert answer == ids
    assert bool(ids) == (path in FACTS)


def test_the_digest_has_the_bytes_of_the_seed(
    upwell: Upwell, gateway: Gateway, tmp_path: Path
) -> None:
    """Seed 003's example: a heading, one line an entry, nothing between and nothing after."""
    (tmp_path / "memory").mkdir()
    dated = "# Dogs\n\nJC's dog Cookie loves carrots\n"
    (tmp_path / "memory" / "2026-04-09.md").write_text(dated, encoding="utf-8")
    (tmp_path / "MEMORY.md").write_text("# Me\n\nColor preference: blue\n", encoding="utf-8")
    for path in ("memory", "MEMORY.md"):
        assert upwell("import", path).code == 0
    peer = gateway()
    asked = peer.call("upwell__memory_context", message="What does JC's dog Cookie love?")
    assert texts(asked) == [
        "## Relevant prior context\n- [memory/2026-04-09.md#L3-L3] JC's dog Cookie loves carrots"
    ]
    assert asked["_meta"]["surfacing_id"]
    silent = peer.call("upwell__memory_context", message="How do I proof sourdough overnight?")
    assert texts(silent) == ["(No relevant prior context for this message.)"]
