"""How well memories are found: recall on conversations and on coding work.

    python benchmarks/retrieval.py [--data DIR] [--only coding|conversations]

Each store is loaded by `Library.add_many` into a database of its own, as a user would. Plain FTS5
(porter, stop words out, any word) is measured beside it in the same run.
"""

import argparse
import asyncio
import json
import math
import sqlite3
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cues import query_of
from upwell.ground.db import open_database
from upwell.ground.limits import Deadline
from upwell.memory.library import Library
from upwell.memory.query import quoted
from upwell.memory.schema import OWNER, TOKENIZER
from upwell.memory.sqlite import SqliteStore
from upwell.memory.terms import query_words

DATA = Path(__file__).parents[2] / "shared" / "data"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Figures:
    """Mean recall, MRR and nDCG over questions."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = defaultdict(float)
        self.count = 0

    def take(self, found: Sequence[str], gold: set[str]) -> None:
        self.count += 1
        for k in (1, 3, 5, 10):
            self.sums[f"R@{k}"] += len(gold & set(found[:k])) / len(gold)
        ranks = [place for place, one in enumerate(found[:10], 1) if one in gold]
        self.sums["MRR"] += 1.0 / ranks[0] if ranks else 0.0
        ideal = sum(1.0 / math.log2(place + 1) for place in range(1, min(10, len(gold)) + 1))
        self.sums["nDCG"] += sum(1.0 / math.log2(place + 1) for place in ranks) / ideal

    def line(self, name: str) -> str:
        parts = [f"{key} {value / max(1, self.count):.3f}" for key, value in self.sums.items()]
        return f"{name:34} n={self.count:5}  " + "  ".join(parts)


async def library(folder: Path, items: list[dict[str, Any]]) -> Library:
    store = SqliteStore(open_database(folder / "memory.db", [OWNER], synchronous="NORMAL"))
    made = Library(store)
    await made.add_many(items)
    return made


def plain_fts(items: list[dict[str, Any]]) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.execute(f"CREATE VIRTUAL TABLE t USING fts5(id UNINDEXED, text, tokenize='{TOKENIZER}')")
    db.executemany("INSERT INTO t VALUES (?, ?)", [(item["id"], item["text"]) for item in items])
    return db


def plain_search(db: sqlite3.Connection, text: str) -> list[str]:
    match = " OR ".join(quoted(word) for word in query_words(text))
    if not match:
        return []
    rows = db.execute("SELECT id FROM t WHERE t MATCH ? ORDER BY rank LIMIT 10", (match,))
    return [row[0] for row in rows]


async def conversations(data: Path) -> None:
    figures: dict[str, Figures] = defaultdict(Figures)
    spent = 0.0
    for talk in lines(data / "conversations_dev.jsonl"):
        items = [
            {"id": turn["id"], "text": f"{turn['speaker']}: {turn['text']}"}
            for turn in talk["turns"]
        ]
        known = {item["id"] for item in items}
        plain = plain_fts(items)
        with tempfile.TemporaryDirectory() as folder:
            made = await library(Path(folder), items)
            for question in talk["questions"]:
                gold = set(question["gold"]) & known
                if question["category"] == 5 or not gold:
                    continue
                figures["plain FTS5"].take(plain_search(plain, question["question"]), gold)
                began = time.process_time()
                hits = await made.search(question["question"], limit=10)
                spent += time.process_time() - began
                found = [hit.memory.id for hit in hits]
                figures["upwell"].take(found, gold)
                figures[f"upwell category {question['category']}"].take(found, gold)
            await made.store._database.aclose()  # type: ignore[attr-defined]
    for name, one in sorted(figures.items()):
        print(one.line(name))
    print(f"CPU per search {1000 * spent / figures['upwell'].count:.2f} ms")


async def coding(data: Path) -> None:
    memories, cues = defaultdict(list), defaultdict(list)
    for memory in lines(data / "coding_dev_memories.jsonl"):
        memories[memory["store"]].append(memory)
    for cue in lines(data / "coding_dev_cues.jsonl"):
        cues[cue["store"]].append(cue)
    figures: dict[str, Figures] = defaultdict(Figures)
    spent = 0.0
    for name, items in memories.items():
        plain = plain_fts(items)
        with tempfile.TemporaryDirectory() as folder:
            made = await library(Path(folder), items)
            for cue in cues[name]:
                if not cue["class"].startswith("pos"):
                    continue
                gold = set(cue["gold"])
                query = query_of(cue)
                kind = cue.get("from", "prompt")
                figures["plain FTS5"].take(plain_search(plain, " ".join(query.texts)), gold)
                began = time.process_time()
                hits = await made.store.search(query, Deadline.after(30))
                spent += time.process_time() - began
                found = [hit.memory.id for hit in hits]
                for label in ("upwell", f"upwell by {kind}", f"upwell in {name}"):
                    figures[label].take(found, gold)
            await made.store._database.aclose()  # type: ignore[attr-defined]
    for label, one in sorted(figures.items()):
        print(one.line(label))
    print(f"CPU per search {1000 * spent / figures['upwell'].count:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--only", choices=("coding", "conversations"))
    options = parser.parse_args()
    if options.only != "coding":
        asyncio.run(conversations(options.data))
    if options.only != "conversations":
        asyncio.run(coding(options.data))


if __name__ == "__main__":
    main()
