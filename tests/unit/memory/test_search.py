"""Internals of search: bounded expressions, small stores, null scores, conversations."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from upwell.ground.clock import Deadline
from upwell.ground.sqlite.database import open_database
from upwell.ground.types.memory import Query, Scope
from upwell.memory.base import StoreRecall
from upwell.memory.library import Library
from upwell.memory.lookups import ROW_BUDGET, stemmer
from upwell.memory.ranking import calibrate as background
from upwell.memory.ranking.calibrate import probability
from upwell.memory.ranking.signals import SIGNALS
from upwell.memory.ranking.terms import names_in, query_words, speaker
from upwell.memory.sqlite.lookup import corpus_seen_by, read
from upwell.memory.sqlite.store import OWNER, SqliteStore

KNOWN = [
    "We pinned urllib3 below 2 because botocore breaks with 2.x behind our proxies",
    "The billing service retries webhooks three times, then parks them in dead_letter",
    "Deploys go out on Tuesdays after the integration tests on staging are green",
]


@pytest.fixture
async def library(tmp_path: Path) -> AsyncIterator[Library]:
    database = open_database(tmp_path / "memory.db", [OWNER], synchronous="FULL")
    made = Library(SqliteStore(database))
    made.database = database
    yield made
    await database.aclose()


async def best(library: Library, text: str) -> float:
    hits = await library.search(text)
    return hits[0].score if hits else 0.0


@pytest.mark.parametrize(
    "text", ["why is urllib3 pinned?", "how do webhook retries work in billing?", "dead_letter"]
)
async def test_three_memories_are_enough_for_a_confident_hit(library: Library, text: str) -> None:
    await library.add_many([{"text": known} for known in KNOWN])
    assert await best(library, text) > 0.5


@pytest.mark.parametrize(
    "text",
    ["hello there", "thanks!", "run the tests", "commit this", "what is the capital of France"],
)
async def test_three_memories_are_enough_for_silence(library: Library, text: str) -> None:
    await library.add_many([{"text": known} for known in KNOWN])
    assert await best(library, text) < 0.1


async def test_a_readme_says_nothing_and_a_file_of_its_own_everything(library: Library) -> None:
    await library.add_many(
        [
            {"text": "mention the new flag", "paths": ["README.md"]},
            {"text": "batches are capped", "paths": ["src/billing/webhooks.py"]},
        ]
    )
    scores = []
    for path in ("/home/x/repo/README.md", "/home/x/repo/src/billing/webhooks.py"):
        query = Query(texts=(), paths=(path,))
        scores.append(
            (await StoreRecall(library.store).search(query, Deadline.after(5))).hits[0].score
        )
    assert scores[0] < 0.5 < scores[1]


async def test_thirty_common_words_stay_within_the_row_budget(library: Library) -> None:
    common = [f"word{i}" for i in range(30)]
    await library.add_many([{"text": " ".join(common)} for _ in range(ROW_BUDGET + 10)])
    database = library.database

    def reading(db):
        return read(db, " ".join(common) + " rare", corpus_seen_by(db, Scope()))

    clauses = (await database.read(reading)).clauses
    assert [clause.words for clause in clauses] == [("word0",)]


async def test_signals_have_the_documented_names(library: Library) -> None:
    await library.add_many([{"text": known} for known in KNOWN])
    hits = await library.search("urllib3")
    assert set(hits[0].signals) == set(SIGNALS)


async def test_null_scores_are_measured_before_add_many_returns(library: Library) -> None:
    database = library.database
    texts = [f"note {i} about kettle{i % 9} and teapot{i % 5}" for i in range(60)]

    async def measured() -> int:
        return await database.read(
            lambda db: db.execute("SELECT count(*) FROM background").fetchone()[0]
        )

    await library.add_many([{"text": text} for text in texts[:10]])
    assert await measured() == 0
    await library.add_many([{"text": text} for text in texts[10:]])
    assert await measured() == len(background.SIZES)


async def test_the_turn_beside_a_match_is_found_too(library: Library) -> None:
    await library.add_many(
        [
            {"id": "a", "text": "Ana: What did you name the puppy from the shelter?"},
            {"id": "b", "text": "Ben: Biscuit, after breakfast."},
            {"id": "c", "text": "Ana: The weather is lovely."},
        ]
    )
    hits = await library.search("name of the puppy")
    assert [hit.memory.id for hit in hits][:2] == ["a", "b"]


def test_words_that_look_like_names() -> None:
    assert names_in("What does Cookie like? Ask JC about urllib3.") == {"cookie", "jc", "urllib3"}
    assert names_in("Fix the bug. Then go home") == set()


def test_the_speaker_of_a_text() -> None:
    assert speaker("Ana María: hi") == "ana maria"
    assert speaker("Fix: the bug") == speaker("feat: x") == speaker("no colon") == ""


def test_stems_agree_with_the_index() -> None:
    assert stemmer().stems(["running", "connections", "running"]) == ["run", "connect", "run"]
    numbered = ["1984", "u45", "ing2", "connections3", "\u0665\u0665", "ings"]
    assert stemmer().stems(numbered) == [*numbered[:-1], "ing"]


def test_no_signals_are_not_relevant() -> None:
    assert 0.0 < probability({}) < 0.1


@pytest.mark.parametrize(
    ("path", "speaks"),
    [("/tmp/x/nothere.txt", False), ("tests/nothere.py", True), ("/repo/src/nothere.py", True)],
)
async def test_a_file_of_data_brings_up_no_code_of_its_name(
    library: Library, path: str, speaks: bool
) -> None:
    await library.add_many([{"text": known} for known in KNOWN])
    await library.add({"text": "The parser gives up after tries", "paths": ["src/nothere.py"]})
    query = Query(texts=(), paths=(path,), limit=5)
    hits = (await StoreRecall(library.store).search(query, Deadline.after(5))).hits
    assert any("parser" in hit.memory.text and hit.score >= 0.5 for hit in hits) is speaks


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("payments are down, what do we do?", ["payments", "down"]),
        ("how do we turn the flag off?", ["turn", "flag", "off"]),
        ("write down how the billing service retries webhooks", None),
        ("what is it about?", ["what", "is", "it", "about"]),
    ],
)
def test_a_word_of_state_counts_among_few_words(asked: str, words: list[str] | None) -> None:
    reply = query_words(asked)
    assert reply == words if words else "down" not in reply


async def test_a_runbook_for_an_outage_is_found(library: Library) -> None:
    down = "Payments down: check the queue depth, then restart payments-worker"
    await library.add_many([*({"text": known} for known in KNOWN), {"text": down}])
    assert await best(library, "payments are down, what do we do?") >= 0.5
