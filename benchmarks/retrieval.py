"""Measures the retrieval of memories: recall on conversations and on coding work.

    python benchmarks/retrieval.py DATA [--only coding|conversations] [--minilm CACHE]

Each store is loaded by `Library.add_many` into a database of its own, as a user would load it. The
same run measures plain FTS5 (porter stems, no stop words, any word may match) and, with `--minilm`,
the store with that embedder, cosine alone, and reciprocal rank fusion of FTS5 and cosine. Vectors
already in CACHE cost no model CPU time.
"""

import argparse
import asyncio
import json
import math
import sqlite3
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cues import query_of
from upwell.ground.clock import Deadline
from upwell.ground.llm import Embedder, cosine
from upwell.ground.sqlite.database import open_database
from upwell.ground.types.memory import Query, Scope
from upwell.memory.base import StoreRecall
from upwell.memory.library import Library
from upwell.memory.lookups import TOKENIZER
from upwell.memory.meaning import QuestionVectors
from upwell.memory.ranking.terms import query_words
from upwell.memory.sqlite.lookup import quoted
from upwell.memory.sqlite.store import OWNER, SqliteStore
from upwell.memory.sqlite.vectors import OWNER as VECTORS


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Figures:
    """Mean recall, MRR and nDCG over questions."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = defaultdict(float)
        self.count = 0

    def take(self, found_ids: Sequence[str], gold: set[str]) -> None:
        self.count += 1
        for k in (1, 3, 5, 10):
            self.sums[f"R@{k}"] += len(gold & set(found_ids[:k])) / len(gold)
        ranks = [place for place, memory_id in enumerate(found_ids[:10], 1) if memory_id in gold]
        self.sums["MRR"] += 1.0 / ranks[0] if ranks else 0.0
        ideal = sum(1.0 / math.log2(place + 1) for place in range(1, min(10, len(gold)) + 1))
        self.sums["nDCG"] += sum(1.0 / math.log2(place + 1) for place in ranks) / ideal

    def line(self, name: str) -> str:
        parts = [f"{key} {value / max(1, self.count):.3f}" for key, value in self.sums.items()]
        return f"{name:34} n={self.count:5}  " + "  ".join(parts)


async def library(
    folder: Path, items: list[dict[str, Any]], model: Embedder | None = None
) -> tuple[Library, SqliteStore]:
    """A store with these memories, embedded if there is a model."""
    folder.mkdir(exist_ok=True)
    database = open_database(folder / "memory.db", [OWNER, VECTORS], synchronous="NORMAL")
    store = SqliteStore(database, questions=QuestionVectors(model) if model else None)
    new_library = Library(store)
    await new_library.add_many(items)
    if store.vectors:
        await store.vectors.catch_up()
    return new_library, store


def plain_fts(items: list[dict[str, Any]]) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.execute(f"CREATE VIRTUAL TABLE t USING fts5(id UNINDEXED, text, tokenize='{TOKENIZER}')")
    db.executemany("INSERT INTO t VALUES (?, ?)", [(item["id"], item["text"]) for item in items])
    return db


def plain_search(db: sqlite3.Connection, text: str, limit: int = 10) -> list[str]:
    match = " OR ".join(quoted(word) for word in query_words(text))
    if not match:
        return []
    rows = db.execute("SELECT id FROM t WHERE t MATCH ? ORDER BY rank LIMIT ?", (match, limit))
    return [row[0] for row in rows]


Search = Callable[[Query], Awaitable[list[str]]]


async def searches_over(
    folder: Path, items: list[dict[str, Any]], model: Embedder | None, spent: dict[str, float]
) -> dict[str, Search]:
    """Searches by name, over the same memories. `spent` collects the CPU seconds of each search."""
    plain = plain_fts(items)
    words, _ = await library(folder / "words", items)
    searches: dict[str, Search] = {}

    async def fts(query: Query) -> list[str]:
        return plain_search(plain, " ".join(query.texts))

    def over(library: Library) -> Search:
        async def search(query: Query) -> list[str]:
            hits = (await StoreRecall(library.store).search(query, Deadline.after(30))).hits
            return [hit.memory.id for hit in hits]

        return search

    searches |= {"plain FTS5": fts, "upwell by words": over(words)}
    if model is not None:
        both, _ = await library(folder / "both", items, model)
        vectors = model.embed([item["text"][:2_000] for item in items])

        async def dense(query: Query) -> list[str]:
            vector = model.embed([query.texts[0]])[0] if query.texts else None
            if vector is None:
                return []
            near = sorted(range(len(items)), key=lambda place: -cosine(vector, vectors[place]))
            return [items[place]["id"] for place in near[:50]]

        async def fused(query: Query) -> list[str]:
            return by_rank([plain_search(plain, " ".join(query.texts), 50), await dense(query)])

        searches |= {"upwell by meaning": over(both), "cosine": dense, "RRF of FTS5, cosine": fused}

    def timed(name: str, search: Search) -> Search:
        async def run(query: Query) -> list[str]:
            began = time.process_time()
            try:
                return await search(query)
            finally:
                spent[name] += time.process_time() - began

        return run

    return {name: timed(name, search) for name, search in searches.items()}


def by_rank(lists: Sequence[Sequence[str]], k: int = 60) -> list[str]:
    """Reciprocal rank fusion (Cormack et al. 2009)."""
    scores: dict[str, float] = defaultdict(float)
    for entry in lists:
        for place, memory_id in enumerate(entry, 1):
            scores[memory_id] += 1.0 / (k + place)
    return sorted(scores, key=lambda memory_id: -scores[memory_id])


async def conversations(data: Path, model: Embedder | None) -> None:
    figures: dict[str, Figures] = defaultdict(Figures)
    spent: dict[str, float] = defaultdict(float)
    for talk in lines(data / "conversations_dev.jsonl"):
        items = [
            {"id": turn["id"], "text": f"{turn['speaker']}: {turn['text']}"}
            for turn in talk["turns"]
        ]
        known = {item["id"] for item in items}
        with tempfile.TemporaryDirectory() as folder:
            searches = await searches_over(Path(folder), items, model, spent)
            for question in talk["questions"]:
                gold = set(question["gold"]) & known
                if question["category"] == 5 or not gold:
                    continue
                query = Query(texts=(question["question"],), scope=Scope(), limit=10)
                for name, search in searches.items():
                    result = await search(query)
                    figures[name].take(result, gold)
                    if name.startswith("upwell"):
                        figures[f"{name}, category {question['category']}"].take(result, gold)
    show(figures, spent)


async def coding(data: Path, model: Embedder | None) -> None:
    memories, cues = defaultdict(list), defaultdict(list)
    for memory in lines(data / "coding_dev_memories.jsonl"):
        memories[memory["store"]].append(memory)
    for cue in lines(data / "coding_dev_cues.jsonl"):
        cues[cue["store"]].append(cue)
    figures: dict[str, Figures] = defaultdict(Figures)
    spent: dict[str, float] = defaultdict(float)
    for store, items in memories.items():
        with tempfile.TemporaryDirectory() as folder:
            searches = await searches_over(Path(folder), items, model, spent)
            for cue in cues[store]:
                if not cue["class"].startswith("pos"):
                    continue
                query = query_of(cue)
                for name, search in searches.items():
                    result = await search(query)
                    figures[name].take(result, set(cue["gold"]))
                    if name.startswith("upwell"):
                        kind = cue.get("from", "prompt")
                        figures[f"{name}, {kind}"].take(result, set(cue["gold"]))
    show(figures, spent)


def show(figures: Mapping[str, Figures], spent: Mapping[str, float]) -> None:
    for name, figure in sorted(figures.items()):
        cpu = f"  CPU {1000 * spent[name] / figure.count:6.2f} ms" if name in spent else ""
        print(figure.line(name) + cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA", help="the folder of the data sets")
    parser.add_argument("--only", choices=("coding", "conversations"))
    parser.add_argument(
        "--minilm", type=Path, metavar="CACHE", help="also search by meaning (minilm.py)"
    )
    options = parser.parse_args()
    model = None
    if options.minilm:
        from minilm import MiniLm

        model = MiniLm(options.minilm)
    if options.only != "coding":
        asyncio.run(conversations(options.data, model))
    if options.only != "conversations":
        asyncio.run(coding(options.data, model))


if __name__ == "__main__":
    main()
