"""Fit the figures of `upwell.memory.ranking.calibrate`; report them on held-out stores.

    uv run --with numpy python benchmarks/calibrate.py DATA

Every development store is loaded whole and as random samples of 200, 40, 15 and 8 memories. The
product's own reader turns every cue into a query. The first three hits of each query are examples:
gold hits are relevant, all others are irrelevant. Only weakly related hits (`gold_weak`) of a cue
that has an answer are left out.

For the figures, every event is scored by a fit without its store. FIR is the share of the events
without a relevant memory that would be answered. "cover" is the share of the other events that
would be answered; "useful" also requires a gold memory among the first three hits. The product's
intercepts are the printed ones minus the logit at which FIR is 5 % in whole stores, so that this
logit becomes a score of 0.5.
"""

import argparse
import asyncio
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from retrieval import library, lines
from upwell.ground.clock import Deadline
from upwell.ground.llm import Embedder
from upwell.ground.types.cue import NO_INTENT, Cue
from upwell.ground.types.memory import Query
from upwell.memory.ranking.calibrate import BY_MEANING, BY_WORDS, features, order_features
from upwell.memory.ranking.scoring import assess
from upwell.memory.sqlite.store import SqliteStore
from upwell.surface.event import Event as CueEvent
from upwell.surface.filters import refusal_of
from upwell.surface.options import PipelineOptions
from upwell.surface.query import CueReader

SIZES = (None, 200, 40, 15, 8)
KEPT = 60
BY_HAND = {"intercept", "few", "few_names"}


@dataclass
class Event:
    """One cue on one store: the hits with their signals, and the expected ones."""

    store: str
    size: int | None
    kind: str
    gold: set[str]
    weak: set[str]
    hits: list[tuple[str, Mapping[str, float]]]

    @property
    def positive(self) -> bool:
        return self.kind.startswith(("pos", "question"))


async def found(store: SqliteStore, query: Query) -> list[tuple[str, Mapping[str, float]]]:
    pool = await store.candidates(query, Deadline.after(60))
    assessed = sorted(assess(pool), key=lambda entry: -entry.relevance)[:KEPT]
    return [(entry.candidate.id, entry.signals) for entry in assessed]


def read(cue: Cue) -> Query | None:
    """The product's query for this cue; None if a gate refuses the cue."""
    options = PipelineOptions()
    event, query = CueEvent.of(cue, options, 0.0), CueReader().query(cue, limit=10)
    return query if refusal_of(event, query, NO_INTENT) is None else None


def coding(cue: Mapping[str, Any]) -> Query | None:
    if cue["door"] == "prompt":
        return read(Cue(door="prompt", text=cue["prompt"]))
    return read(Cue(door="tool", tool=cue["tool"], args=cue["args"]))


def stores(data: Path) -> Iterator[tuple[str, list[dict[str, Any]], list[tuple[Any, ...]]]]:
    """Each store: its name, its memories, and (kind, query, gold, weak) of its cues."""
    memories, cues = defaultdict(list), defaultdict(list)
    for memory in lines(data / "coding_dev_memories.jsonl"):
        memories[memory["store"]].append(memory)
    for cue in lines(data / "coding_dev_cues.jsonl"):
        if cue["class"] not in ("write_tool", "weak_tool"):
            case = (cue["class"], coding(cue), set(cue["gold"]), set(cue["gold_weak"]))
            cues[cue["store"]].append(case)
    for name, items in memories.items():
        yield name, items, cues[name]
    prompts = defaultdict(list)
    for prompt in lines(data / "silence_dev.jsonl"):
        query = read(Cue(door="prompt", text=prompt["prompt"]))
        case = (prompt["class"], query, set(prompt["gold"] or ()), set())
        prompts[prompt["store"]].append(case)
    for talk in lines(data / "conversations_dev.jsonl"):
        items = [
            {"id": turn["id"], "text": f"{turn['speaker']}: {turn['text']}"}
            for turn in talk["turns"]
        ]
        yield f"talk {talk['store']}", items, prompts[talk["store"]]


async def events(data: Path, model: Embedder | None) -> list[Event]:
    rng = random.Random(11)
    new_events: list[Event] = []
    for name, items, cases in stores(data):
        for size in SIZES:
            part = items if size is None else rng.sample(items, min(size, len(items)))
            ids = {item["id"] for item in part}
            with tempfile.TemporaryDirectory() as folder:
                _, store = await library(Path(folder), part, model)
                for place, (kind, query, gold, weak) in enumerate(cases):
                    positive = kind.startswith("pos")
                    if (positive and not gold & ids) or (size and not positive and place % 3):
                        continue
                    hits = await found(store, query) if query is not None else []
                    new_events.append(Event(name, size, kind, gold & ids, weak, hits))
                await store._database.aclose()
    return new_events


def rows(
    observed: Sequence[Event], names: Sequence[str], turn: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    features_, labels, weights = [], [], []
    for event in observed:
        for place, (found_id, signals) in enumerate(event.hits[:3]):
            relevant = found_id in event.gold
            unsure = event.positive and not relevant and found_id in event.weak
            if bool(signals.get("turn")) != turn or unsure:
                continue
            values = features(signals)
            features_.append([values[name] for name in names])
            labels.append(float(relevant))
            half = not relevant and (event.positive or place > 0)
            weights.append((0.5 if half else 1.0) * (1.0 if event.size is None else 0.5))
    return np.array(features_), np.array(labels), np.array(weights)


def logistic(x: np.ndarray, y: np.ndarray, w: np.ndarray, ridge: float = 5.0) -> np.ndarray:
    """Intercept and coefficients, by Newton's method on standardised features."""
    mean, spread = x.mean(0), x.std(0) + 1e-9
    z = np.c_[np.ones(len(x)), (x - mean) / spread]
    penalty = ridge * np.eye(z.shape[1])
    penalty[0, 0] = 0.0
    b = np.zeros(z.shape[1])
    for _ in range(30):
        p = 1.0 / (1.0 + np.exp(-z @ b))
        hessian = (z * (w * p * (1.0 - p))[:, None]).T @ z + penalty
        b -= np.linalg.solve(hessian, z.T @ (w * (p - y)) + penalty @ b)
    slopes = b[1:] / spread
    return np.r_[b[0] - slopes @ mean, slopes]


def ordering(observed: Sequence[Event], names: Sequence[str], turn: bool) -> np.ndarray:
    """Weights of the order, by listwise softmax over the hits of each positive event."""
    lists = []
    for event in observed:
        hits = [(i, s) for i, s in event.hits if bool(s.get("turn")) == turn]
        gold = np.array([float(found_id in event.gold) for found_id, _ in hits])
        if event.positive and event.size is None and gold.sum():
            table = [[order_features(s)[name] for name in names] for _, s in hits]
            lists.append((np.array(table), gold / gold.sum()))
    w, m, v = (np.zeros(len(names)) for _ in range(3))
    for step in range(1, 301):
        gradient = 1e-3 * w
        for x, target in lists:
            e = np.exp(x @ w - (x @ w).max())
            gradient = gradient + x.T @ (e / e.sum() - target) / len(lists)
        m, v = 0.9 * m + 0.1 * gradient, 0.99 * v + 0.01 * gradient**2
        w = w - 0.05 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.99**step)) + 1e-8)
    return w


def best_logit(event: Event, models: Mapping[bool, tuple[Sequence[str], np.ndarray]]) -> float:
    best = -99.0
    for _, signals in event.hits[:10]:
        names, b = models[bool(signals.get("turn"))]
        values = features(signals)
        best = max(best, float(b[0] + b[1:] @ np.array([values[name] for name in names])))
    return best


def report(observed: Sequence[Event], names: Mapping[bool, Sequence[str]]) -> None:
    logits: dict[int, float] = {}
    for left_out in sorted({event.store for event in observed}):
        rest = [event for event in observed if event.store != left_out]
        models = {turn: (names[turn], logistic(*rows(rest, names[turn], turn))) for turn in names}
        logits |= {
            place: best_logit(event, models)
            for place, event in enumerate(observed)
            if event.store == left_out
        }
    for talk in (False, True):
        for size in SIZES:
            chosen = [
                (logits[place], event)
                for place, event in enumerate(observed)
                if event.store.startswith("talk") == talk and event.size == size
            ]
            bad = np.array([logit for logit, event in chosen if not event.positive])
            good = [(logit, event) for logit, event in chosen if event.positive]
            if not good:
                continue
            at = float(np.quantile(bad, 0.95))
            useful = [
                logit > at and any(i in event.gold for i, _ in event.hits[:3])
                for logit, event in good
            ]
            print(
                f"{'conversations' if talk else 'coding':14} of {size or 'all':>4}: at FIR 5 % "
                f"logit {at:6.2f}  cover {np.mean([logit > at for logit, _ in good]):.3f}  "
                f"useful {np.mean(useful):.3f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA", help="the folder of the data sets")
    parser.add_argument(
        "--minilm", type=Path, metavar="CACHE", help="also search by meaning (minilm.py)"
    )
    options = parser.parse_args()
    model = None
    if options.minilm:
        from minilm import MiniLm

        model = MiniLm(options.minilm)
    observed = asyncio.run(events(options.data, model))
    fitted = BY_MEANING if model else BY_WORDS
    names = {
        False: [n for n in fitted.note if n not in BY_HAND],
        True: [n for n in fitted.turn if n not in BY_HAND],
    }
    report(observed, names)
    for turn, order in ((False, fitted.note_order), (True, fitted.turn_order)):
        result = logistic(*rows(observed, names[turn], turn))
        print(
            "turn" if turn else "note",
            dict(zip(["intercept", *names[turn]], result.round(3), strict=True)),
        )
        print(
            "order", dict(zip(order, ordering(observed, list(order), turn).round(2), strict=True))
        )


if __name__ == "__main__":
    main()
