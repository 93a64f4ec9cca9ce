"""Seed 002: how responses are compressed. The tests of its rows in `tests/NAMES.md`."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Upwell
from tests.doors.address import Conversation
from tests.doors.reading import everything, key_in, texts
from tests.doors.seeds.conftest import Lab, upwell_in
from tests.doors.seeds.model import serving
from tests.doors.seeds.rows import row
from tests.doors.servers.data import big_json, big_log, big_markdown

NESTED = json.dumps(
    {f"zone{n}": {"pump": {"state": "on", "hours": n, "notes": "oil " * 30}} for n in range(60)}
)
API = "# Pumps API\n\n" + "\n".join(
    f"## GET /pumps/{n}\n\nReturns pump {n}.\n\n" + f"Parameter {n} is optional. " * 20
    for n in range(60)
)
SAMPLES = {
    "truncate": big_log(400),
    "hybrid": big_markdown(20),
    "selective": big_markdown(20),
    "progressive": big_markdown(20),
    "extract_fields": NESTED,
    "schema_pruning": big_json(100),
    "skeleton": API,
    "llm_summary": big_log(400),
    "auto": big_log(400),
    "none": "short",
}


@row("ten strategies")
@pytest.mark.parametrize("strategy", SAMPLES)
def test_each_strategy_can_be_asked_for(upwell: Upwell, strategy: str) -> None:
    text = SAMPLES[strategy]
    options = ("--strategy", strategy, "--max-tokens", "500", "--json")
    result = upwell("compress", *options, input=text).json
    applied = {"auto": "truncate", "llm_summary": "truncate"}.get(strategy, strategy)
    assert result["strategy"] == applied
    assert result["tokens"] <= (1000 if strategy == "selective" else 500)
    assert (result["text"] == text) == (strategy == "none")


@row("auto-selection logic")
async def test_auto_chooses_by_content(lab: Lab) -> None:
    async with lab(facts=False) as bench:
        chosen = {
            name: (await bench.app.compress(SAMPLES[name], max_tokens=500)).strategy
            for name in ("none", "schema_pruning", "extract_fields", "skeleton", "hybrid")
        }
        chosen["truncate"] = (await bench.app.compress(big_log(400), max_tokens=500)).strategy
    assert chosen == {name: name for name in chosen}


@row("opt-in strategies")
async def test_auto_never_chooses_an_opt_in_strategy(lab: Lab) -> None:
    async with lab(facts=False) as bench:
        for text in SAMPLES.values():
            strategy = (await bench.app.compress(text, max_tokens=500)).strategy
            assert strategy not in {"selective", "progressive", "llm_summary"}


@row("query-aware budget allocation")
@pytest.mark.parametrize("strategy", ["hybrid", "schema_pruning", "skeleton", "selective"])
def test_the_question_decides_what_is_kept(upwell: Upwell, strategy: str) -> None:
    text, query, fact = {
        "schema_pruning": (big_json(300), "service-0217", "service-0217"),
        "skeleton": (API, "pumps 41", "/pumps/41"),
    }.get(strategy, (big_markdown(100), "pool 41", "Section 41"))
    options = ("--strategy", strategy, "--max-tokens", "600", "--query", query)
    assert fact in upwell("compress", *options, input=text).out


@row("NaN, Infinity, -Infinity become `null`")
def test_what_is_no_json_becomes_null(upwell: Upwell) -> None:
    records = [f'{{"n": {n}, "a": NaN, "b": Infinity, "c": -Infinity}}' for n in range(400)]
    done = upwell("compress", "--max-tokens", "500", input=f"[{', '.join(records)}]")

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    assert json.loads(done.out, parse_constant=refuse)
    assert "null" in done.out


@row("JSON degrades with the budget")
async def test_a_smaller_budget_never_gives_more(lab: Lab) -> None:
    async with lab(facts=False) as bench:
        sizes = [
            (await bench.app.compress(big_json(200), max_tokens=budget)).tokens
            for budget in (2000, 1000, 500, 250, 125)
        ]
    assert sizes == sorted(sizes, reverse=True)


@row("a table of contents first (selective)")
def test_a_table_of_contents_leads_to_its_sections(agent: Conversation) -> None:
    contents = agent.call("up__big_json")
    listed = everything(contents)
    key = key_in(contents)
    first = json.loads(texts(contents)[0])
    assert "service" in listed or first
    result = agent.call("upwell__select_sections", key=key, sections=["0-99"])
    names = everything(result)
    assert "sections:" in names or "service-" in names


@row("a chunk first (progressive)")
def test_a_first_chunk_leads_to_the_rest(agent: Conversation) -> None:
    first = agent.call("up__big_markdown")
    assert "field guide" in texts(first)[0]
    assert f"{len(big_markdown()):,}" in everything(first) or key_in(first)


@row("`stm_proxy_read_more(key, offset)`")
def test_chunks_joined_are_the_original(agent: Conversation) -> None:
    from upwell.compress.progressive import PROGRESSIVE_FOOTER_TOKEN, rejoin

    key = key_in(agent.call("up__big_markdown"))
    chunks, offset = list[str](), 0
    while offset < len(big_markdown()):
        chunk = texts(agent.call("upwell__read_more", key=key, offset=offset, limit=100_000))[0]
        chunks.append(chunk)
        offset += int(chunk.rpartition(PROGRESSIVE_FOOTER_TOKEN)[2].rstrip("]"))
    assert rejoin(chunks) == big_markdown()


@row("`PROGRESSIVE_FOOTER_TOKEN`")
async def test_every_chunk_ends_with_the_footer(lab: Lab) -> None:
    from upwell.compress.progressive import PROGRESSIVE_FOOTER_TOKEN, chunk

    assert PROGRESSIVE_FOOTER_TOKEN == "\n---\n[progressive: chars="
    assert chunk("abc def", 0, 4) == "abc \n---\n[progressive: chars=4]"
    async with lab(facts=False) as bench:
        text = (await bench.app.compress("word " * 9000, strategy="progressive")).text
    assert f"{PROGRESSIVE_FOOTER_TOKEN}" in text


@row("`MIN_RESULT_RETENTION`")
async def test_without_a_key_65_percent_are_delivered(lab: Lab) -> None:
    from upwell.compress.compressor import Compressor
    from upwell.ground.types.compression import Budget, Passage

    text = big_markdown(20)
    async with lab(facts=False) as bench:
        floor = bench.app.config.compress.min_result_retention
    budget = Budget(max_chars=1000, floor=floor)
    done = Compressor().compress(Passage(text=text), budget)
    assert floor == 0.65
    # The budget is raised to a little above the floor, because whole units do not fill it.
    assert 0.70 * len(text) >= len(done.text) >= 0.65 * len(text)


@row("`max_result_chars`")
def test_a_tool_has_a_limit_in_characters(upwell: Upwell) -> None:
    env = {"UPWELL_COMPRESS__MAX_RESULT_CHARS": "3000"}
    assert len(upwell("compress", input=big_log(400), env=env).out) <= 3000


@row("fallback ladder progressive → hybrid → truncate")
def test_what_a_strategy_refuses_goes_down_the_ladder(upwell: Upwell) -> None:
    options = ("--strategy", "extract_fields", "--max-tokens", "500", "--json")
    result = upwell("compress", *options, input="plain words. " * 900).json
    assert next(attempt["strategy"] for attempt in result["tried"]) == "extract_fields"
    assert result["strategy"] in {"progressive", "hybrid", "truncate"}


@row("`llm_summary` by Ollama or OpenAI")
def test_a_model_summarises(upwell: Upwell) -> None:
    with serving("The linker failed in unit 399.") as model:
        env = {"UPWELL_LLM__BASE_URL": model.address, "UPWELL_LLM__MODEL": "m"}
        options = ("--strategy", "llm_summary", "--max-tokens", "500")
        assert (
            "The linker failed in unit 399."
            in upwell("compress", *options, input=big_log(400), env=env).out
        )


@row("`llm_timeout_seconds`")
def test_a_slow_model_is_replaced_by_truncate(upwell: Upwell) -> None:
    with serving("late", seconds=5.0) as model:
        env = {
            "UPWELL_LLM__BASE_URL": model.address,
            "UPWELL_LLM__MODEL": "m",
            "UPWELL_COMPRESS__LLM_TIMEOUT_SECONDS": "0.3",
        }
        options = ("--strategy", "llm_summary", "--max-tokens", "500", "--json")
        result = upwell("compress", *options, input=big_log(400), env=env).json
    assert result["strategy"] == "truncate"
    assert upwell("config", "show", "--json").json["compress.llm_timeout_seconds"]["value"] == 60.0


@row("budget tuning: information loss, too long")
def test_reports_move_the_budget_of_a_tool(agent: Conversation, served: Path) -> None:
    for kind, tool in (("truncated", "big_mixed"), ("too_long", "big_fail")):
        for _ in range(3):
            report = {"server": "up", "tool": tool, "kind": kind, "missing": "rows"}
            answer = agent.call("upwell__compression_feedback", **report)
            assert f"noted {kind} for up__{tool}" in everything(answer)
    listed = json.loads(upwell_in(served, "tune", "--json"))["tools"]
    ratios: dict[str, Any] = {tool["tool"]: tool["budget_ratio"] for tool in listed}
    assert ratios["up__big_mixed"] > 1 > ratios["up__big_fail"]
