"""Seed 004: intents and memories at prompts. The tests of its rows in `tests/NAMES.md`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Upwell
from tests.doors.address import Conversation
from tests.doors.reading import everything
from tests.doors.seeds.conftest import FACTS, Lab, upwell_in
from tests.doors.seeds.model import Model, serving
from tests.doors.seeds.rows import row
from upwell import Skip, Surfacing
from upwell.ground.types.cue import IntentKind
from upwell.surface.options import SurfaceOptions
from upwell.usage.events import CountedEvent

PROMPTS = {
    "howto": "how do I root juniper cuttings?",
    "troubleshoot": "why does the kiln fail with an error?",
    "location": "where is the pewter tankard kept?",
    "explanation": "explain the idea behind the saffron invoices",
    "comparison": "compare walnut and juniper: which is better?",
    "general": "is there anything on the obsidian blades?",
}


def classified(kind: str, confidence: float, *topics: str) -> str:
    return json.dumps({"type": kind, "confidence": confidence, "topics": topics})


def asking(model: Model, **more: Any) -> dict[str, Any]:
    return {
        "intent.use_llm": True,
        "llm.base_url": model.address,
        "llm.model": "m",
        **more,
    }


@row("six intent types")
@pytest.mark.parametrize("kind", PROMPTS)
async def test_six_types_are_found_by_keywords(lab: Lab, kind: str) -> None:
    async with lab() as bench:
        assert (await bench.say(PROMPTS[kind])).intent.kind == IntentKind(kind)


@row("hybrid detection, source of an intent (ADR-001)")
def test_the_source_of_an_intent_is_shown(upwell: Upwell) -> None:
    command = ("context", PROMPTS["howto"], "--door", "prompt", "--format", "json")
    assert upwell(*command).json["intent"]["source"] == "keyword"
    with serving(classified("howto", 0.9, "kilns")) as model:
        env = {
            "UPWELL_INTENT__USE_LLM": "true",
            "UPWELL_INTENT__LLM_TIMEOUT_MS": "5000",
            "UPWELL_LLM__BASE_URL": model.address,
            "UPWELL_LLM__MODEL": "m",
        }
        upwell("remember", FACTS["juniper"])
        intent = upwell(*command, env=env).json["intent"]
    assert (intent["source"], intent["type"], intent["topics"]) == ("hybrid", "howto", ["kilns"])


@row("topics of the model are used (ADR-001)")
async def test_a_topic_of_the_model_is_searched(lab: Lab) -> None:
    with serving(classified("troubleshoot", 0.9, "cobalt glaze")) as model:
        async with lab(asking(model, **{"intent.llm_timeout_ms": 5000})) as bench:
            said = await bench.say("why does the last batch come out wrong again?")
    assert "cobalt glaze" in said.queries
    assert isinstance(said, Surfacing), said
    assert [hit.memory.id for hit in said.hits] == ["cobalt"]


@row("× 1.15 for two queries or more")
@pytest.mark.parametrize(("boost", "first"), [(9.0, "both"), (0.1, "one")])
async def test_two_queries_lift_a_hit(lab: Lab, boost: float, first: str) -> None:
    assert SurfaceOptions().multi_match_boost == 1.15
    texts = {
        "both": "the orchard ladder stands beside the cobalt glaze",
        "one": "the orchard ladder leans, an orchard ladder is short",
    }
    with serving(classified("troubleshoot", 0.9, "cobalt glaze")) as model:
        more = {"intent.llm_timeout_ms": 5000, "surface.multi_match_boost": boost}
        async with lab(asking(model, **more), facts=False) as bench:
            await bench.app.memory.add_many([{"id": k, "text": v} for k, v in texts.items()])
            said = await bench.say("where is the orchard ladder?", door="ask")
    assert isinstance(said, Surfacing), said
    assert len(said.hits) == len(texts)
    assert said.hits[0].memory.id == first


@row("`use_llm`, `llm_timeout_ms` (ADR-004)")
async def test_a_slow_model_is_not_waited_for(lab: Lab) -> None:
    with serving(classified("howto", 0.9), seconds=1.5) as model:
        async with lab(asking(model)) as bench:
            said = await bench.say(PROMPTS["howto"])
            assert bench.app.config.intent.llm_timeout_ms == 200
            await bench.app.learning.counts.flush()
            (asked,) = [
                count
                for count in await bench.app.learning.counts.since(1)
                if count.event is CountedEvent.INTENT
            ]
    assert isinstance(said, Surfacing)
    assert said.intent.source == "keyword"
    assert asked.kind == "timeout"


@row("timeouts are counted (ADR-004)")
def test_stats_count_the_answers_of_the_model(upwell: Upwell) -> None:
    with serving("", status=500) as model:
        env = {
            "UPWELL_INTENT__USE_LLM": "true",
            "UPWELL_INTENT__LLM_TIMEOUT_MS": "20000",
            "UPWELL_LLM__BASE_URL": model.address,
            "UPWELL_LLM__MODEL": "m",
        }
        upwell("remember", FACTS["juniper"])
        upwell("context", PROMPTS["howto"], "--door", "prompt", "--session", "s", env=env)
    assert upwell("stats", "--json").json["intent_model"] == {"failed": 1}


@row("namespace weights (ADR-002)")
@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("howto", "patterns", "learnings"),
        ("troubleshoot", "blockers", "learnings"),
        ("location", "decisions", "context"),
        ("explanation", "decisions", "context"),
    ],
)
async def test_the_namespace_of_an_intent_comes_first(
    lab: Lab, kind: str, first: str, second: str
) -> None:
    prompt = PROMPTS[kind].replace("juniper", "kiln").replace("pewter tankard", "kiln")
    prompt = prompt.replace("saffron invoices", "kiln fail")
    async with lab(facts=False) as bench:
        weights = bench.app.config.surface.namespace_weights[IntentKind(kind)]
        assert (weights[first], weights[second]) == (1.5, 1.3)
        texts = {
            name: f"The kiln fail number {n}" for n, name in enumerate(("misc", second, first))
        }
        await bench.app.memory.add_many(
            [{"text": text, "namespace": name} for name, text in texts.items()]
        )
        said = await bench.say(prompt, door="ask")
    assert isinstance(said, Surfacing), said
    assert [hit.memory.namespace for hit in said.hits] == [first, second, "misc"]


@row("2x limit before weighting (ADR-002)")
async def test_twice_as_many_are_searched_as_surface(lab: Lab) -> None:
    limits: list[int] = []
    async with lab() as bench:
        search = bench.app.memory.recall.search

        async def noting(query: Any, deadline: Any) -> Any:
            limits.append(query.limit)
            return await search(query, deadline)

        bench.app.memory.recall.search = noting  # type: ignore[method-assign]
        await bench.say("do juniper cuttings root below sixteen degrees?", door="ask")
    assert limits == [8]


@row("topic index (ADR-003)")
def test_topics_are_listed_and_follow_a_capture(upwell: Upwell) -> None:
    upwell("remember", "Sluices open at dawn", "--tag", "sluices")
    topics = upwell("topics", "--json").json["topics"]
    counts = {topic["name"]: topic["memory_count"] for topic in topics}
    assert counts["sluices"] == 1
    upwell("remember", "Sluices rust in autumn", "--tag", "sluices")
    topics = upwell("topics", "--json").json["topics"]
    assert {topic["name"]: topic["memory_count"] for topic in topics}["sluices"] == 2


@row("`subcog://topics/{topic}`")
def test_a_topic_is_a_resource(agent: Conversation) -> None:
    def read(uri: str) -> Any:
        answer = agent.post("resources/read", 3, {"uri": uri})[2]["result"]
        return json.loads(answer["contents"][0]["text"])

    uris = {topic["name"]: topic["uri"] for topic in read("upwell://topics")["topics"]}
    assert uris["pewter"] == "upwell://topics/pewter"
    assert [memory["id"] for memory in read(uris["pewter"])["memories"]] == ["pewter"]


@row("`max_tokens` 4000 (ADR-005)")
async def test_a_prompt_gets_at_most_4000_tokens(lab: Lab) -> None:
    from upwell.ground.text.tokens import count

    flags = {"surface.preview_chars": 4000, "surface.max_count": 15}
    async with lab(flags, facts=False) as bench:
        assert bench.app.config.surface.max_tokens == 4000
        texts = [f"The kiln rule {n}: " + f"glaze {n} shelf {n * 7} " * 150 for n in range(15)]
        await bench.app.memory.add_many([{"text": text} for text in texts])
        said = await bench.say("how do I apply the kiln rule to the glaze shelf? Tell me now.")
    assert isinstance(said, Surfacing), said
    assert 1000 < count(said.text) <= 4000


@row("preview of ~200 characters (ADR-005)")
def test_a_prompt_gets_previews(hook: Callable[..., dict[str, Any]], served: Path) -> None:
    text = "Sextants are calibrated by Ada. " + " ".join(f"Bolt {n} turns left." for n in range(30))
    upwell_in(served, "remember", text, "--path", "src/sextant.py")
    answer = hook("UserPromptSubmit", prompt="who calibrates the sextants of src/sextant.py?")
    lines = answer["hookSpecificOutput"]["additionalContext"].splitlines()
    (line,) = [line for line in lines if "Sextants" in line]
    preview = line.partition("] ")[2].partition(" upwell://")[0]
    assert 150 < len(preview) <= 200


@row("memory URN")
def test_the_whole_text_is_at_the_address_in_the_block(
    hook: Callable[..., dict[str, Any]], served: Path
) -> None:
    text = "Astrolabes hang in the tower. " + " ".join(f"Hook {n} is brass." for n in range(30))
    upwell_in(served, "remember", text, "--path", "src/astrolabe.py")
    answer = hook("UserPromptSubmit", prompt="where do the astrolabes of src/astrolabe.py hang?")
    block = answer["hookSpecificOutput"]["additionalContext"]
    uri = "upwell://memory/" + block.partition("[upwell://memory/")[2].partition("]")[0]
    assert "upwell read" in block
    assert "upwell__memory_get" not in block
    assert upwell_in(served, "read", uri).strip() == text.strip()


@row("reminder beside injected memories")
def test_the_block_says_what_it_is(agent: Conversation) -> None:
    block = everything(agent.call("up__read", path="src/magenta.py"))
    assert "Notes from earlier work, for reference" in block
    assert "upwell__memory_get" in block


@row("confidence 0.5 / 0.8 (ADR-006)")
@pytest.mark.parametrize(
    ("prompt", "items"),
    [
        ("kiln shelves are glazed and stacked", 5),
        ("where are the kiln shelves?", 10),
        (
            "Where are the kiln shelves? Also: how do I find the kiln shelves, and where exactly?",
            15,
        ),
    ],
)
async def test_confidence_decides_how_many(lab: Lab, prompt: str, items: int) -> None:
    async with lab({"surface.min_score": 0.05}, facts=False) as bench:
        texts = [f"The kiln shelves of row {n} are glazed and stacked" for n in range(20)]
        await bench.app.memory.add_many([{"text": text} for text in texts])
        said = await bench.say(prompt)
    assert isinstance(said, Surfacing), said
    assert len(said.hits) == items, said.intent


@row("`required`: below 0.5 nothing is injected, but logged")
async def test_a_weak_intent_is_silent_and_logged(lab: Lab) -> None:
    async with lab({"intent.required": True}) as bench:
        outcome = await bench.say("pewter tankards tarnish in the cellar")
        await bench.app.surfacer.journal.flush()
        (decision,) = await bench.app.decisions()
    assert isinstance(outcome, Skip)
    assert str(outcome.reason) == "low_intent"
    assert decision["outcome"] == "low_intent"
    assert decision["intent"][1] < 0.5


@row("`max_count`")
async def test_no_prompt_gets_more_than_max_count(lab: Lab) -> None:
    async with lab({"surface.max_count": 3}, facts=False) as bench:
        texts = [f"The kiln shelves of row {n} are glazed" for n in range(20)]
        await bench.app.memory.add_many([{"text": text} for text in texts])
        said = await bench.say("where are the kiln shelves?")
    assert isinstance(said, Surfacing)
    assert len(said.hits) == 3
