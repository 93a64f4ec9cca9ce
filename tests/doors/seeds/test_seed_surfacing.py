"""Seed 000: when upwell speaks by itself. The tests of its rows in `tests/NAMES.md`."""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.doors.address import Address, Conversation
from tests.doors.conformance.run import free_port, program
from tests.doors.conftest import script
from tests.doors.reading import everything
from tests.doors.seeds.conftest import FACTS, Bench, Lab
from tests.doors.seeds.rows import row
from upwell import Skip, Surfacing
from upwell.ground.clock import Deadline
from upwell.ground.errors import RecallUnavailable
from upwell.ground.types.cue import Feedback, Rating
from upwell.ground.types.memory import Found, Query
from upwell.ground.types.rpc import Ping
from upwell.memory.base import Recalls

DAY = 86_400.0
LONG = [f"The {word} locker was repainted" for word in "alpha bravo delta echo golf hotel".split()]


def ids(outcome: Surfacing | Skip) -> list[str]:
    assert isinstance(outcome, Surfacing), outcome
    return [hit.memory.id for hit in outcome.hits]


def why(outcome: Surfacing | Skip) -> str:
    assert isinstance(outcome, Skip), outcome
    return str(outcome.reason)


@dataclass
class Broken:
    """A place to recall from that fails, until it is told otherwise."""

    name: str = "broken"
    fails: bool = True
    deadlines: list[float] = field(default_factory=list[float])

    async def search(self, query: Query, deadline: Deadline) -> Found:
        self.deadlines.append(deadline.remaining())
        if self.fails:
            raise RecallUnavailable("out of order", source="broken", hint="")
        return Found()

    async def ping(self) -> Ping:
        return Ping(ok=True, detail="")


def broken_in(bench: Bench) -> Broken:
    """Make a broken place the only one that this app searches."""
    assert isinstance(bench.app.memory.recall, Recalls)
    broken = Broken()
    bench.app.memory.recall.places = (broken,)
    return broken


@row("`_context_query`")
def test_a_query_of_the_agent_finds_memories(agent: Conversation) -> None:
    result = agent.call("up__say", _context_query="hinges for the greenhouse door")
    assert FACTS["walnut"] in everything(result)


@row("5-level context extraction")
async def test_the_first_of_five_levels_with_words_is_the_query(lab: Lab) -> None:
    levels: Sequence[tuple[str, dict[str, Any], str]] = (
        ("crm__lookup", {"who": "Ada", "_context_query": "tides"}, "template ada"),
        ("fs__open", {"_context_query": "tides", "path": "a/rope.py"}, "tides"),
        ("fs__open", {"path": "src/mooring_rope.py", "query": "winches"}, "mooring rope"),
        ("fs__open", {"description": "grease winches"}, "grease winches"),
        ("harbour__moor_ferries", {}, "moor ferries"),
    )
    async with lab({"surface.templates": {"crm__*": "template {who}"}}, facts=False) as bench:
        outcomes = [await bench.use(tool, **args) for tool, args, _ in levels]
    assert [" ".join(outcome.queries).lower() for outcome in outcomes] == [
        text for _, _, text in levels
    ]


@row("tool-specific query template")
async def test_a_template_makes_the_query(lab: Lab) -> None:
    async with lab({"surface.templates": {"crm__*": "{customer.topic} invoices"}}) as bench:
        assert ids(await bench.use("crm__open", customer={"topic": "saffron"})) == ["saffron"]


async def test_a_template_is_a_question_wherever_moments_count(lab: Lab) -> None:
    moments = {"surface.moments": ["question", "asking_call", "failed"]}
    template = {"surface.templates": {"crm__*": "{topic} invoices"}}
    async with lab(moments) as bench:
        assert isinstance(await bench.use("crm__open", topic="saffron"), Skip)
    async with lab({**moments, **template}) as bench:
        assert ids(await bench.use("crm__open", topic="saffron")) == ["saffron"]


@row("`path`, `file`, `filepath`, `file_path`, `filename`")
async def test_every_path_argument_is_read(lab: Lab) -> None:
    keys = ("path", "file", "filepath", "file_path", "filename")
    async with lab() as bench:
        for key, word in zip(keys, FACTS, strict=False):
            assert ids(await bench.use("fs__open", **{key: f"src/{word}.py"})) == [word]


@row("`query`, `search`, `url`, `description`")
async def test_every_argument_with_a_meaning_is_read(lab: Lab) -> None:
    async with lab() as bench:
        for key, word in zip(("query", "search", "url", "description"), FACTS, strict=False):
            words = " ".join(FACTS[word].split()[:6])
            value = f"https://example.org/{words.replace(' ', '-')}" if key == "url" else words
            assert ids(await bench.use("web__open", **{key: value})) == [word]


@row("relevance gating")
async def test_each_of_the_five_gates_can_be_the_reason(lab: Lab) -> None:
    async with lab() as bench:
        assert why(await bench.use("fs__list")) == "unsuitable_query"
        assert why(await bench.say("what is it then?")) == "unsuitable_query"
        assert why(await bench.use("fs__open", query="zeppelin mast")) == "no_candidates"
        assert ids(await bench.use("fs__open", path="src/walnut.py")) == ["walnut"]
        bench.clock.advance(6)
        assert why(await bench.use("fs__view", path="src/walnut.py")) == "repeated"
    async with lab({"surface.min_score": 0.9999}, facts=False) as bench:
        assert why(await bench.use("fs__open", query="printer papers")) == "below_min_score"


@row("`INJECTION_MODE` append, prepend, section")
@pytest.mark.parametrize(("mode", "block"), [("append", -1), ("prepend", 0), ("section", -1)])
def test_memories_stand_where_the_mode_says(agent: Conversation, mode: str, block: int) -> None:
    tool = {"append": "say", "prepend": "received", "section": "numbers"}[mode]
    content = agent.call(f"up__{tool}", _context_query="spare hinges greenhouse")["content"]
    assert len(content) == 2
    assert FACTS["walnut"] in content[block]["text"]
    assert content[block]["text"].startswith("## Relevant") == (mode == "section")


@row("`section` on continuations (F6)")
def test_a_chunk_in_section_mode_brings_memories(agent: Conversation) -> None:
    result = agent.call("up__big_markdown", _context_query="spare hinges greenhouse")
    assert FACTS["walnut"] in everything(result)
    assert "[progressive: chars=" in result["content"][0]["text"]


@row("model-aware defaults: windows of 32 K and 200 K")
async def test_a_window_scales_results_and_memories(lab: Lab) -> None:
    sizes = {}
    text = "\n\n".join(f"Paragraph {n} tells of rope {n * 7919}." for n in range(4000))
    for window in (32_768, 32_769, 200_000, 200_001):
        async with lab({"agent.context_window": window}, facts=False) as bench:
            delivered = await bench.app.compress(text)
            surface = bench.app.config.surface_of(None, None)
            sizes[window] = (
                -(-delivered.tokens // 1000),
                surface.max_injection_chars,
                surface.max_count,
            )
    assert sizes == {
        32_768: (2, 1500, 5),
        32_769: (4, 3000, 15),
        200_000: (4, 3000, 15),
        200_001: (8, 4500, 20),
    }


@row("`agent.model` instead of a window")
@pytest.mark.parametrize(
    ("model", "tokens"),
    [("mixtral-8x7b", 1500), ("claude-sonnet-4-5", 4000), ("gemini-2.5-pro", 8000)],
)
async def test_a_model_stands_for_its_window(lab: Lab, model: str, tokens: int) -> None:
    async with lab({"agent.model": model}, facts=False) as bench:
        text = "\n\n".join(f"Paragraph {n} tells of rope {n * 7919}." for n in range(4000))
        assert tokens * 0.8 < (await bench.app.compress(text)).tokens <= tokens


@row("three-state breaker")
async def test_the_breaker_lets_one_search_through_and_closes(lab: Lab) -> None:
    async with lab() as bench:
        broken = broken_in(bench)
        reasons = [why(await bench.say(text + " twice.")) for text in LONG[:4]]
        assert reasons == ["fault", "fault", "fault", "breaker_open"]
        bench.clock.advance(60.1)
        broken.fails = False
        reasons = [why(await bench.say(text + " again.")) for text in LONG[4:]]
        assert reasons == ["no_candidates", "no_candidates"]


@row("`circuit_max_failures`, `circuit_reset_seconds`")
async def test_three_failures_open_the_breaker_for_a_minute(lab: Lab) -> None:
    async with lab() as bench:
        broken_in(bench)
        for text in LONG[:3]:
            assert why(await bench.say(text)) == "fault"
        bench.clock.advance(59.0)
        assert why(await bench.say(LONG[3])) == "breaker_open"
        bench.clock.advance(1.5)
        assert why(await bench.say(LONG[4])) == "fault"


@row("surfacing timeout 3 s")
async def test_a_search_has_three_seconds(lab: Lab) -> None:
    async with lab() as bench:
        broken = broken_in(bench)
        await bench.say(LONG[0])
    assert broken.deadlines == [pytest.approx(3.0)]


@row("15 calls a minute")
async def test_the_sixteenth_surfacing_of_a_minute_is_refused(lab: Lab) -> None:
    words = [f"plum{chr(97 + n)}grove" for n in range(16)]
    async with lab(facts=False) as bench:
        await bench.app.memory.add_many(
            [{"text": f"The {word} fence", "id": word, "paths": [f"{word}.py"]} for word in words]
        )
        said = [await bench.use("fs__open", path=f"{word}.py") for word in words]
        assert [ids(outcome) for outcome in said[:15]] == [[word] for word in words[:15]]
        assert why(said[15]) == "rate"
        bench.clock.advance(60.1)
        assert ids(await bench.use("fs__open", path=f"{words[15]}.py")) == [words[15]]


@row("write-tool skip")
def test_nothing_stands_beside_a_write(agent: Conversation) -> None:
    result = agent.call("up__write_note", _context_query="hinges for the greenhouse door", text="x")
    assert FACTS["walnut"] not in everything(result)


@row("query cooldown, Jaccard > 0.95 in 5 s")
async def test_the_same_question_rests_for_five_seconds(lab: Lab) -> None:
    async with lab({"surface.dedup_ttl_seconds": 0}) as bench:
        assert ids(await bench.use("fs__open", query="walnut cabinet hinges")) == ["walnut"]
        bench.clock.advance(4.9)
        assert why(await bench.use("fs__open", query="hinges walnut cabinet")) == "cooldown"
        assert ids(await bench.use("fs__open", query="walnut cabinet hinges greenhouse door"))
        bench.clock.advance(5.1)
        assert ids(await bench.use("fs__open", query="walnut cabinet hinges")) == ["walnut"]


@row("`DEDUP_TTL_SECONDS`")
async def test_a_known_memory_is_silent_for_seven_days_in_every_session(lab: Lab) -> None:
    async with lab() as bench:
        said = await bench.use("fs__open", path="src/walnut.py")
        assert isinstance(said, Surfacing)
        await bench.app.surfacer.ratings.rate(
            Feedback(surfacing_id=said.id, rating=Rating.ALREADY_KNOWN)
        )
        bench.clock.advance(6.9 * DAY)
        other = {"door": "tool", "tool": "fs__open", "args": {"path": "src/walnut.py"}}
        assert why(await bench.say(session="t", **other)) == "repeated"
        bench.clock.advance(0.2 * DAY)
        assert ids(await bench.say(session="u", **other)) == ["walnut"]


@row("3000 chars per injection")
async def test_a_call_gets_at_most_3000_characters(lab: Lab) -> None:
    async with lab(facts=False) as bench:
        notes = [f"Winch {n}: {'grease it, turn it, ' * 40}{n}" for n in range(12)]
        await bench.app.memory.add_many(
            [{"text": text, "paths": ["src/winch.py"]} for text in notes]
        )
        said = await bench.use("fs__open", path="src/winch.py")
    assert isinstance(said, Surfacing)
    assert 2000 < len(said.text) <= 3000


@row("`query_retention_days`, `persist_query_text`")
async def test_query_texts_are_gone_after_30_days(lab: Lab) -> None:
    async with lab() as bench:
        await bench.use("fs__open", query="hinges of the greenhouse")
        bench.clock.advance(29 * DAY)
        assert await queries(bench) == [["hinges of the greenhouse"]]
        bench.clock.advance(1.1 * DAY)
        await bench.app.run_housekeeping()
        assert await queries(bench) == [[]]


@row("sha256 digest instead of the query")
async def test_a_digest_is_stored_instead_of_the_query(lab: Lab) -> None:
    async with lab({"surface.persist_query_text": False}) as bench:
        await bench.use("fs__open", query="hinges of the greenhouse")
        ((stored,),) = await queries(bench)
    assert stored.startswith("sha256:")
    assert len(stored) == 71


async def queries(bench: Bench) -> list[list[str]]:
    await bench.app.surfacer.journal.flush()
    return [decision["queries"] for decision in await bench.app.decisions()]


@row("helpful, partially_helpful, not_relevant, already_known")
def test_every_rating_is_accepted(agent: Conversation) -> None:
    ratings = ("helpful", "partially_helpful", "not_relevant", "already_known")
    for rating, word in zip(ratings, FACTS, strict=False):
        said = agent.call("up__read", path=f"src/{word}.py")
        result = agent.call(
            "upwell__feedback", surfacing_id=said["_meta"]["surfacing_id"], rating=rating
        )
        assert everything(result) == f"noted {rating} for 1 memory, surfaced at up__read"


@row("auto-tuner, per-tool `min_score`")
@pytest.mark.parametrize(("rating", "moves"), [("not_relevant", 1), ("helpful", -1)])
async def test_ratings_move_the_threshold_of_their_tool(lab: Lab, rating: str, moves: int) -> None:
    async with lab(facts=False) as bench:
        await bench.app.memory.add_many(
            [{"text": f"Ledger {n} of harbour {n}", "paths": [f"l{n}.py"]} for n in range(12)]
        )
        for n in range(12):
            said = await bench.use("fs__open", path=f"l{n}.py")
            assert isinstance(said, Surfacing)
            await bench.app.surfacer.ratings.rate(
                Feedback(surfacing_id=said.id, rating=Rating(rating))
            )
            bench.clock.advance(10)
        await bench.app.learning.learned.tune()
        (tuned,) = [row for row in await bench.app.learning.learned.thresholds() if row.samples]
    assert tuned.tool == "fs__open"
    assert (tuned.suggested > 0.5) - (tuned.suggested < 0.5) == moves


@row("`min_score`")
async def test_a_threshold_silences_what_is_less_probable(lab: Lab) -> None:
    async with lab({"surface.min_score": 0.99999}) as bench:
        outcome = await bench.use("fs__open", query="walnut cabinet")
        assert why(outcome) == "below_min_score"
    async with lab({"surface.min_score": 0.1}, facts=False) as bench:
        assert ids(await bench.use("fs__open", query="walnut cabinet")) == ["walnut"]


@row("`feedback_demotion_negative_threshold`")
async def test_three_bad_ratings_demote_a_memory(lab: Lab) -> None:
    async with lab() as bench:
        for number in range(3):
            cue = {"door": "tool", "tool": "fs__open", "args": {"path": "src/walnut.py"}}
            said = await bench.say(session=f"s{number}", **cue)
            assert isinstance(said, Surfacing)
            rating = Feedback(surfacing_id=said.id, rating=Rating.NOT_RELEVANT)
            await bench.app.surfacer.ratings.rate(rating)
            bench.clock.advance(60)
        assert why(await bench.say(session="s4", **cue)) == "demoted"


@row("`mms hook`, `additionalContext`")
def test_a_hook_adds_memories_to_a_tool_of_the_host(
    hook: Callable[..., dict[str, Any]],
) -> None:
    answer = hook(
        "PostToolUse",
        tool_name="Read",
        tool_input={"file_path": "src/walnut.py"},
        tool_response="x",
    )
    assert FACTS["walnut"] in answer["hookSpecificOutput"]["additionalContext"]


@row("a warm local daemon")
def test_a_daemon_stays_up_between_two_events(upwell: Callable[..., Any]) -> None:
    event = json.dumps({"hook_event_name": "SessionStart", "session_id": "s", "cwd": "/"})
    assert upwell("hook", "claude", input=event).code == 0
    before = upwell("daemon", "status", "--json").json["daemons"]
    assert upwell("hook", "claude", input=event).code == 0
    after = upwell("daemon", "status", "--json").json["daemons"]
    assert upwell("daemon", "stop").code == 0
    own = {row["pid"] for row in before} & {row["pid"] for row in after if row["answers"]}
    assert own


@row("`trace_id`")
def test_a_call_carries_the_trace_of_its_client(
    agent: Conversation, decisions: Callable[[], list[dict[str, Any]]]
) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    parent = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    call = {"name": "up__say", "arguments": {"_context_query": "tarnish"}, "_meta": parent}
    assert agent.post("tools/call", 5, call)[0] == 200
    deadline = time.monotonic() + 20  # the answer does not wait until the decision is recorded
    while trace not in [decision["trace_id"] for decision in decisions()]:
        assert time.monotonic() < deadline


SSE = """
import sys
from mcp.server import MCPServer
server = MCPServer("memory")
@server.tool()
def find(query: str) -> list[dict[str, str]]:
    return [{"text": "Brass lanterns are trimmed on Fridays"}]
server.run("sse", host="127.0.0.1", port=int(sys.argv[1]))
"""


@row("`LTM_MCP_TRANSPORT`, `LTM_MCP_URL`, `LTM_MCP_HEADERS`")
async def test_another_memory_server_over_http(lab: Lab, address: Address) -> None:
    flags = {
        "ltm.transport": "streamable_http",
        "ltm.url": f"http://127.0.0.1:{address.port}/mcp",
        "ltm.headers": {"Authorization": f"Bearer {address.token}"},
    }
    async with lab(flags, facts=False) as bench:
        found = await bench.app.memory.find("pewter tankards tarnish in the cellar")
    assert FACTS["pewter"] in [hit.memory.text for hit in found.hits]


@row("LTM over stdio, the default, and over sse")
async def test_another_memory_server_over_stdio_and_sse(lab: Lab, tmp_path: Path) -> None:
    command = script("ltm", "--fact", "Brass lanterns are trimmed on Fridays")
    (tmp_path / "server.py").write_text(SSE)
    port = free_port()
    sse = {
        "ltm.transport": "sse",
        "ltm.url": f"http://127.0.0.1:{port}/sse",
    }
    running = [sys.executable, str(tmp_path / "server.py"), str(port)]
    with program(running, port, dict(os.environ), tmp_path / "sse.log"):
        for flags in ({"ltm.command": command}, sse):
            async with lab(flags, facts=False) as bench:
                found = await bench.app.memory.find("when are the brass lanterns trimmed?")
            assert [hit.memory.text for hit in found.hits] == [
                "Brass lanterns are trimmed on Fridays"
            ], found.missing


@row("LTM answers bypass compression and cache")
async def test_answers_of_a_memory_server_are_not_shortened(lab: Lab) -> None:
    fact = "Brass lanterns are trimmed on Fridays. " + "Oil is in the shed. " * 150
    command = script("ltm", "--fact", fact)
    flags = {"ltm.command": command, "compress.max_result_tokens": 50}
    async with lab(flags, facts=False) as bench:
        found = await bench.app.memory.find("when are the brass lanterns trimmed?")
    assert [hit.memory.text for hit in found.hits] == [fact.strip()]
