"""When upwell speaks and when it stays silent, on the repository's own small set
(`benchmarks/own`)."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from upwell import Cue, Surfacing
from upwell.app import App, Settings, build
from upwell.ground.clock import Deadline
from upwell.ground.text.anchors import paths_in, symbols_in
from upwell.ground.types.cue import Skip, SkipReason
from upwell.ground.types.memory import Query

FOLDER = Path(__file__).parents[3] / "benchmarks" / "own"
ALL_AT_ONCE = {
    "surface.moments": "all",
    "surface.dedup_ttl_seconds": 0,
    "surface.rate_per_minute": 1_000_000,
    "surface.cooldown_seconds": 0,
}


def lines(name: str) -> list[dict]:
    text = (FOLDER / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


CUES = lines("cues.jsonl")


def cue_of(row: dict, place: int = 0) -> Cue:
    session = row.get("session", str(place))
    if "prompt" in row:
        return Cue(door="prompt", text=row["prompt"], session=session)
    return Cue(door="tool", tool=row["tool"], args=row["args"], session=session)


def unasked(text: str) -> Query:
    """The query for these words if nobody has asked for a search."""
    return Query(texts=(text,), paths=paths_in(text), symbols=symbols_in(text), awaited=False)


@pytest.fixture
async def harbour(tmp_path: Path) -> AsyncIterator[App]:
    """An app with memories about the harbour, without a rate limit."""
    app = await build(Settings(home=tmp_path, flags=ALL_AT_ONCE, environment={}))
    await app.memory.add_many(lines("memories.jsonl"))
    yield app
    await app.aclose()


@dataclass
class Tally:
    asked: int = 0
    answered: int = 0
    useful: int = 0


async def test_upwell_speaks_only_when_it_has_a_relevant_memory(harbour: App) -> None:
    tallies: dict[str, Tally] = {}
    for position, row in enumerate(CUES):
        outcome = await harbour.surfacer.surface(cue_of(row, position))
        tally = tallies.setdefault(row["class"], Tally())
        tally.asked += 1
        if isinstance(outcome, Surfacing):
            tally.answered += 1
            tally.useful += bool({m.id for m in outcome.memories[:3]} & set(row["gold"]))
    for silent in ("neg_chat", "neg_meta", "write_tool"):
        assert tallies[silent].answered == 0, silent
    assert tallies["neg_generic"].answered <= 0.025 * tallies["neg_generic"].asked
    unwanted = [tally for kind, tally in tallies.items() if kind.startswith("neg")]
    assert sum(t.answered for t in unwanted) <= 0.05 * sum(t.asked for t in unwanted)
    for entry in ("pos_tool", "pos_prompt"):
        assert tallies[entry].useful >= 0.85 * tallies[entry].asked, entry


async def test_by_default_upwell_speaks_only_at_telling_moments(tmp_path: Path) -> None:
    unlimited = {key: value for key, value in ALL_AT_ONCE.items() if key != "surface.moments"}
    app = await build(Settings(home=tmp_path, flags=unlimited, environment={}))
    await app.memory.add_many(lines("memories.jsonl"))
    spoke: dict[str, list[bool]] = {}
    for position, row in enumerate(CUES):
        outcome = await app.surfacer.surface(cue_of(row, position))
        assert not isinstance(outcome, Surfacing) or len(outcome.memories) <= 2
        spoke.setdefault(row["class"], []).append(isinstance(outcome, Surfacing))
    await app.aclose()
    unwanted = [
        answer for kind, answers in spoke.items() if kind[:3] == "neg" for answer in answers
    ]
    assert sum(unwanted) <= 0.03 * len(unwanted)
    assert sum(spoke["pos_tool"]) >= 0.7 * len(spoke["pos_tool"])
    assert sum(spoke["pos_prompt"]) >= 0.5 * len(spoke["pos_prompt"])


async def test_a_session_gets_a_memory_once(tmp_path: Path) -> None:
    app = await build(Settings(home=tmp_path, flags={"surface.moments": "all"}, environment={}))
    await app.memory.add_many(lines("memories.jsonl"))
    heard: set[str] = set()
    for row in (row for row in CUES if row["class"] == "repeat"):
        outcome = await app.surfacer.surface(cue_of({**row, "session": "one"}))
        reply = {m.id for m in outcome.memories} if isinstance(outcome, Surfacing) else set()
        assert not reply & heard
        heard |= reply
    await app.aclose()
    assert heard >= {gold for row in CUES if row["class"] == "repeat" for gold in row["gold"]}


async def test_a_prompt_gets_the_memories_that_recall_finds(harbour: App) -> None:
    """If the best hit of such a query reaches `min_score`, a prompt with the same words also brings
    it."""
    least = harbour.config.surface.min_score
    reader, deadline = harbour.memory.reader, Deadline.after(10)
    texts = [row["prompt"] for row in CUES if "prompt" in row]
    texts += [memory["text"] for memory in lines("memories.jsonl")]
    result = 0
    for text in texts:
        query = unasked(text)
        hits = (await reader.search(query, deadline)).hits
        if not hits or hits[0].score < least:
            continue
        outcome = await harbour.surfacer.surface(Cue(door="prompt", text=text, session=text))
        if isinstance(outcome, Skip) and outcome.reason is SkipReason.NOT_APPLICABLE:
            continue
        assert isinstance(outcome, Surfacing), f"{text}: {outcome}"
        assert hits[0].memory.id in {m.id for m in outcome.memories}
        result += 1
    assert result > 60


async def test_a_call_gets_the_memories_that_recall_finds(harbour: App) -> None:
    least = harbour.config.surface.min_score
    result = 0
    for position, row in enumerate(row for row in CUES if row["class"] == "pos_tool"):
        outcome = await harbour.surfacer.surface(cue_of(row, position))
        queries = map(unasked, outcome.queries)
        found_for = [await harbour.memory.reader.search(q, Deadline.after(10)) for q in queries]
        hits = [hit for entry in found_for for hit in entry.hits]
        if any(hit.score >= least for hit in hits):
            assert isinstance(outcome, Surfacing), row
            result += 1
    assert result > 10
