"""Another memory server as a place to recall from: over calls that a test answers."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from upwell.ground.clock import Deadline
from upwell.ground.errors import RecallUnavailable
from upwell.ground.types.memory import Hit, Query, Scope, Trust
from upwell.memory.external.ltm import LtmRecall, Patience
from upwell.testing import ManualClock

FACT = "The settlement job runs before midnight UTC, or refunds double."
OTHER = "Tulips bloom in May."
QUESTION = "when does the settlement job run?"
Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def text(words: str, **more: object) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], **more}


class Server:
    """Has these tools, each with its arguments, and gives the configured answers."""

    def __init__(self, tools: Mapping[str, list[str]], answer: Answer) -> None:
        self.is_ready = True
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self._tools = {name: frozenset(declared) for name, declared in tools.items()}
        self.answer = answer

    def ready(self) -> bool:
        return self.is_ready

    async def tools(self, deadline: Deadline) -> Mapping[str, frozenset[str]]:
        return self._tools

    async def call(
        self, tool: str, arguments: Mapping[str, Any], deadline: Deadline
    ) -> Mapping[str, Any]:
        self.asked.append((tool, arguments))
        return self.answer(arguments)

    async def aclose(self) -> None:
        return None


def query(words: str = QUESTION, *, awaited: bool = True, **scope: Any) -> Query:
    return Query(texts=(words,), scope=Scope(**scope), awaited=awaited)


async def found(server: Server, words: str = QUESTION) -> list[Hit]:
    recall = LtmRecall(server)
    return list((await recall.search(query(words), Deadline.after(30))).hits)


STRUCTURED = json.dumps(
    {
        "results": [
            {"rank": 1, "score": 0.0312, "source": "garden.md", "hierarchy": "", "content": OTHER},
            {
                "rank": 2,
                "score": 0.0161,
                "source": "billing.md",
                "hierarchy": "# Billing",
                "namespace": "default",
                "chunk_id": "4c8e",
                "content": FACT,
            },
        ],
        "score_scale": "rrf",
        "recorded": False,
    }
)
COMPACT = (
    f"Found 2 results:\n\n[1] 0.03 | garden.md\n{OTHER}\n\n"
    f"[2] 0.02 | [work] billing.md > # Billing\n{FACT}\n"
)
NUMBERED = (
    "Found 2 memories (mode: semantic) for query: 'x'\n\n"
    f"1. {OTHER}\n   Hash: aa01\n   Created: 2026-04-09T10:00:00Z [garden]\n\n"
    f"2. {FACT}\n   Hash: bb02\n   Created: 2026-04-09T10:00:00Z"
)
SIMILAR = {
    "memories": [
        {"content": OTHER, "content_hash": "aa01", "tags": ["garden"], "similarity_score": 0.4},
        {"content": FACT, "content_hash": "bb02", "tags": [], "similarity_score": 0.3},
    ],
    "count": 2,
}
NOTES = {
    "results": [
        {
            "title": "Billing",
            "type": "entity",
            "score": 0.7,
            "permalink": "notes/billing",
            "content": None,
            "matched_chunk": FACT,
            "file_path": "notes/billing.md",
        }
    ],
    "current_page": 1,
    "page_size": 20,
}
GRAPH = {
    "entities": [
        {"name": "settlement job", "entityType": "job", "observations": [FACT]},
        {"name": "garden", "entityType": "place", "observations": [OTHER]},
    ],
    "relations": [{"from": "garden", "to": "settlement job", "relationType": "knows"}],
}
CITED = (
    f"[billing.md#L2-L5] (0.91, id 01k9abc)\n{FACT}\n---\n"
    f"[ ] (0.20, id stm:7, superseded by a newer one)\n{OTHER}"
)
SEARCH = ["query", "top_k", "namespace", "output_format"]
PROFILES = {
    "memtomem": ({"mem_search": SEARCH, "mem_do": []}, text(STRUCTURED), "billing.md"),
    "memtomem wrapped": (
        {"mem_search": SEARCH},
        text(STRUCTURED, structuredContent={"result": STRUCTURED}),
        "billing.md",
    ),
    "memtomem compact": ({"mem_search": ["query"]}, text(COMPACT), "billing.md > # Billing"),
    "memory_service": ({"memory_search": ["query", "limit"]}, text(NUMBERED), ""),
    "memory_service older": (
        {"retrieve_memory": ["query", "n_results"]},
        text(json.dumps(SIMILAR), structuredContent=SIMILAR),
        "",
    ),
    "basic_memory": (
        {"search_notes": ["query", "page_size"], "read_note": []},
        text("", structuredContent=NOTES),
        "notes/billing.md",
    ),
    "official": (
        {"search_nodes": ["query"], "read_graph": []},
        text(json.dumps(GRAPH), structuredContent=GRAPH),
        "settlement job",
    ),
    "upwell": (
        {"upwell__memory_search": ["query", "max_results"]},
        text(CITED),
        "billing.md#L2-L5",
    ),
}


@pytest.mark.parametrize("name", PROFILES)
async def test_every_known_server_is_recognised_by_its_tools_and_read(name: str) -> None:
    tools, answer, source = PROFILES[name]
    server = Server(tools, lambda _: answer)
    best, *rest = await found(server)
    assert FACT in best.memory.text
    assert OTHER not in best.memory.text
    assert best.memory.source == f"ltm:{source}"
    assert best.memory.trust is Trust.IMPORTED
    assert best.memory.project is None
    assert best.signals["bm25"] > 0
    assert all(hit.score < best.score for hit in rest)
    tool, arguments = server.asked[0]
    assert tool in tools
    assert set(arguments) <= set(tools[tool]), "only what the tool declares is sent"


NOTHING = {
    "memtomem": ({"mem_search": []}, text("No results found.")),
    "memory_service": ({"memory_search": []}, text("No memories found")),
    "basic_memory": ({"search_notes": []}, text("# Search Complete - No Results Found\n…")),
    "official": ({"search_nodes": []}, text('{"entities":[],"relations":[]}')),
    "upwell": ({"upwell__memory_search": []}, text("Nothing is remembered about 'x'.")),
}


@pytest.mark.parametrize("name", NOTHING)
async def test_an_empty_result_is_not_a_failure(name: str) -> None:
    tools, answer = NOTHING[name]
    assert await found(Server(tools, lambda _: answer)) == []


async def test_at_automatic_doors_the_servers_score_is_only_one_signal() -> None:
    server = Server({"mem_search": SEARCH}, lambda _: text(STRUCTURED))
    unasked = replace(query(QUESTION), awaited=False)
    hits = (await LtmRecall(server).search(unasked, Deadline.after(30))).hits
    assert [hit.signals["ltm"] for hit in hits] == [0.0161, 0.0312]
    assert [hit.score == 0 for hit in hits] == [False, True]


async def test_an_explicit_search_shows_the_servers_score_where_our_words_show_nothing() -> None:
    hits = await found(Server({"mem_search": SEARCH}, lambda _: text(STRUCTURED)))
    assert hits[0].score > 0.5
    assert hits[1].score == 0.0312


async def test_a_server_with_literal_search_is_asked_word_by_word() -> None:
    server = Server({"search_nodes": ["query"]}, lambda _: text(json.dumps(GRAPH)))
    assert FACT in (await found(server, "what of the settlement and refunds?"))[0].memory.text
    assert [arguments["query"] for _, arguments in server.asked] == ["settlement", "refunds"]


async def test_an_unknown_server_is_searched_with_the_tool_named_so() -> None:
    def answer(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        assert arguments == {"query": QUESTION}
        return text(
            json.dumps({"data": {"n": [7], "items": [{"memory": FACT, "score": 3}, OTHER]}})
        )

    tools = {"list_things": ["query"], "search_log": ["id"], "findNotes": ["query", "limit"]}
    hits = await found(Server(tools, answer))
    assert [hit.memory.text for hit in hits] == [FACT, OTHER]
    assert hits[0].signals["ltm"] == 3


@pytest.mark.parametrize(
    "tool", ["delete_by_query", "find_and_replace", "forgetRecalled", "run_query", "researchStart"]
)
async def test_a_tool_that_may_change_something_is_not_called(tool: str) -> None:
    server = Server({tool: ["query"]}, lambda _: text("[]"))
    with pytest.raises(RecallUnavailable, match="no search tool"):
        await found(server)
    assert server.asked == []


async def test_a_server_without_a_search_tool_is_reported_with_its_tools() -> None:
    with pytest.raises(RecallUnavailable, match="its tools: read_file, write_file"):
        await found(Server({"write_file": [], "read_file": []}, lambda _: text("")))
    recall = LtmRecall(Server({"read_file": []}, lambda _: text("")))
    ping = await recall.ping()
    assert not ping.ok
    assert "takes a `query`" in ping.hint


RUBBISH = {
    "text": text("Welcome to the jungle"),
    "another shape": text('{"rows": []}'),
    "no list": text('{"results": {"content": "x"}}'),
    "half of JSON": text('{"results": ['),
    "nothing": {},
    "an error": text("database is locked", isError=True),
    "wrong types": {"content": "x", "structuredContent": 7},
}


@pytest.mark.parametrize("name", RUBBISH)
async def test_rubbish_is_one_clear_error(name: str) -> None:
    with pytest.raises(RecallUnavailable, match="the memory server gave no hits"):
        await found(Server({"mem_search": SEARCH}, lambda _: RUBBISH[name]))


async def test_secrets_of_another_server_are_masked() -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    reply = text(json.dumps({"results": [{"content": f"The deploy token is {key}."}]}))
    (hit,) = await found(Server({"mem_search": SEARCH}, lambda _: reply), "deploy token")
    assert key not in hit.memory.text


async def test_a_hit_can_be_read_by_its_id() -> None:
    recall = LtmRecall(Server({"mem_search": SEARCH}, lambda _: text(STRUCTURED)))
    hits = (await recall.search(query(), Deadline.after(30))).hits
    assert hits[0].memory.id.startswith("ltm:")
    assert await recall.get(hits[0].memory.id) == hits[0].memory
    assert await recall.get("ltm:0") is None


async def test_hits_are_visible_in_every_project() -> None:
    recall = LtmRecall(Server({"mem_search": SEARCH}, lambda _: text(STRUCTURED)))
    hits = (
        await recall.search(query(project="/src/shop", tenant="other"), Deadline.after(30))
    ).hits
    assert FACT in hits[0].memory.text


class Hanging(Server):
    async def call(
        self, tool: str, arguments: Mapping[str, Any], deadline: Deadline
    ) -> Mapping[str, Any]:
        self.asked.append((tool, arguments))
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_hanging_server_is_skipped_after_some_failures_and_tried_again() -> None:
    clock = ManualClock()
    server = Hanging({"mem_search": SEARCH}, lambda _: text(STRUCTURED))
    patience = Patience(race_seconds=0.03, max_failures=3, reset_seconds=60)
    recall = LtmRecall(server, patience, clock=clock)

    async def fails(message: str) -> None:
        with pytest.raises(RecallUnavailable, match=message):
            await recall.search(query(awaited=False), Deadline.after(30, clock))

    for _ in range(3):
        await fails("did not answer within 20 ms")
    for _ in range(5):
        await fails("is paused; last failure: the memory server did not answer")
    assert len(server.asked) == 3
    clock.advance(61)
    await fails("did not answer within 20 ms")
    assert len(server.asked) == 4


async def test_explicit_searches_have_a_breaker_of_their_own() -> None:
    slow = Hanging({"mem_search": SEARCH}, lambda _: text(STRUCTURED))
    recall = LtmRecall(slow, Patience(race_seconds=0.003, max_failures=1))
    with pytest.raises(RecallUnavailable):
        await recall.search(query(awaited=False), Deadline.after(30))
    with pytest.raises(RecallUnavailable, match="did not answer within 7 ms"):
        await recall.search(query(), Deadline.after(0.01))
    assert len(slow.asked) == 2


async def test_an_automatic_door_does_not_wait_for_the_servers_start() -> None:
    server = Server({"mem_search": SEARCH}, lambda _: text(STRUCTURED))
    recall = LtmRecall(server, Patience(max_failures=1, race_seconds=10))
    server.is_ready = False
    with pytest.raises(RecallUnavailable, match="is not up yet"):
        await recall.search(query(awaited=False), Deadline.after(30))
    server.is_ready = True
    assert (await recall.search(query(awaited=False), Deadline.after(30))).hits


async def test_no_secret_is_sent_to_the_server() -> None:
    key = "AKIA" + "Q3EGRDAZ5MFXN2WB"
    for name, tools in {"mem_search": ["query"], "search_nodes": ["query"]}.items():
        server = Server({name: tools}, lambda _: text("[]"))
        recall = LtmRecall(server)
        asked = Query(texts=(f"why is {key} refused",), paths=(f"{key}.md",), symbols=("refuse",))
        with suppress(RecallUnavailable):
            await recall.search(asked, Deadline.after(30))
        assert server.asked
        assert key.lower() not in str(server.asked).lower()
        assert "redacted" not in str(server.asked).lower()
        assert "refuse" in str(server.asked)


async def test_a_long_hit_says_that_it_was_cut() -> None:
    similar = {"content": f"{FACT} " * 200, "content_hash": "bb02", "similarity_score": 0.9}
    answer = text(json.dumps({"memories": [similar], "count": 1}))
    [hit] = await found(Server({"retrieve_memory": ["query"]}, lambda _: answer))
    assert hit.memory.text.startswith(FACT)
    assert hit.memory.text.endswith("[cut after 4000 characters; the memory server has the rest]")
    assert len(hit.memory.text) < 4_100
