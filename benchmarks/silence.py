"""Measures when upwell speaks and when it stays silent: every cue goes through the product's own
surfacer.

    python benchmarks/silence.py DATA [--only coding|conversations|together] [--share 0.35]
    python benchmarks/silence.py --own

`--own` uses the small set of this repository (`benchmarks/own`, the booking system of a fictional
harbour), for which CI checks bounds. The other sets are development data that are not part of the
repository. Each store is a new home to which its memories are added as a user would add them. Every
cue has a session of its own, except that some cues of the small set share one.

FIR is the share of the cues without a relevant memory that are answered. Cover is the share of the
other cues that are answered. An answer is useful if a gold memory is among its first three;
precision is the share of useful answers among all. AUC is the area under the curve of `confidence`
between the two groups of cues.

The baselines are the rule of memtomem-stm (a reciprocal rank score of at least 0.02 over FTS5 and
cosine) and cosine alone with the threshold that gives 80 % cover. Without `--minilm CACHE` there is
no cosine. With it, upwell is also measured with that model, for which it waits up to nine seconds.
"""

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retrieval import lines, plain_fts, plain_search
from upwell import Cue, Surfacing
from upwell.app import Settings, build
from upwell.ground.llm import EMBEDDERS
from upwell.memory import meaning

RRF_LEAST, RRF_K = 0.02, 60
UNLIMITED = {
    "surface.moments": "all",
    "surface.dedup_ttl_seconds": 0,
    "surface.rate_per_minute": 1_000_000,
    "surface.cooldown_seconds": 0,
}
"""No limits apply, because the cues of a benchmark come all at once; those of a working day do not.
"""


@dataclass
class Store:
    """Memories and their cues: (class, cue, gold ids)."""

    name: str
    memories: list[dict[str, Any]]
    cues: list[tuple[str, Cue, set[str]]] = field(default_factory=list)


@dataclass
class Answer:
    """The outcome of one cue."""

    kind: str
    spoke: bool
    useful: bool
    confidence: float
    milliseconds: float = 0.0

    @property
    def relevant(self) -> bool:
        return self.kind.startswith("pos")

    @property
    def irrelevant(self) -> bool:
        return self.kind.startswith("neg")


def coding(data: Path) -> list[Store]:
    stores: dict[str, Store] = {}
    for memory in lines(data / "coding_dev_memories.jsonl"):
        name = memory.pop("store")
        stores.setdefault(name, Store(name, [])).memories.append(memory)
    for row in lines(data / "coding_dev_cues.jsonl"):
        cue = (
            Cue(door="prompt", text=row["prompt"], session=row["id"])
            if row["door"] == "prompt"
            else Cue(door="tool", tool=row["tool"], args=row["args"], session=row["id"])
        )
        stores[row["store"]].cues.append((row["class"], cue, set(row["gold"])))
    return list(stores.values())


def conversations(data: Path) -> list[Store]:
    stores = {}
    for talk in lines(data / "conversations_dev.jsonl"):
        turns = [
            {"id": turn["id"], "text": f"{turn['speaker']}: {turn['text']}"}
            for turn in talk["turns"]
        ]
        stores[talk["store"]] = Store(f"talk {talk['store']}", turns)
    for place, row in enumerate(lines(data / "silence_dev.jsonl")):
        cue = Cue(door="prompt", text=row["prompt"], session=str(place))
        stores[row["store"]].cues.append((row["class"], cue, set(row["gold"] or ())))
    return list(stores.values())


def own() -> list[Store]:
    """The repository's own set. Cues of one `session` follow one another."""
    folder = Path(__file__).parent / "own"
    store = Store("harbour", lines(folder / "memories.jsonl"))
    for place, row in enumerate(lines(folder / "cues.jsonl")):
        session = row.get("session", str(place))
        cue = (
            Cue(door="prompt", text=row["prompt"], session=session)
            if "prompt" in row
            else Cue(door="tool", tool=row["tool"], args=row["args"], session=session)
        )
        store.cues.append((row["class"], cue, set(row["gold"])))
    return [store]


def together(stores: Sequence[Store]) -> list[Store]:
    """All conversations in one store; ids get the name of their store as a prefix."""
    all_talks = Store("all talks", [])
    for store in stores:
        all_talks.memories += [{**m, "id": f"{store.name}/{m['id']}"} for m in store.memories]
        all_talks.cues += [
            (kind, cue, {f"{store.name}/{gold}" for gold in golds})
            for kind, cue, golds in store.cues
            if not kind.startswith("neg_question") and not kind.startswith("neg_statement")
        ]
    return [all_talks]


async def ours(
    store: Store, cues: Sequence[tuple[str, Cue, set[str]]], embedder: str = ""
) -> list[Answer]:
    answers = []
    flags = UNLIMITED | {"embed.kind": embedder}
    with tempfile.TemporaryDirectory() as home:
        app = await build(Settings(home=Path(home), flags=flags, environment={}))
        await app.memory.add_many(store.memories)
        await app.embeddings.catch_up()
        for kind, cue, gold in cues:
            began = time.process_time()
            outcome = await app.surfacer.surface(cue)
            took = 1000 * (time.process_time() - began)
            spoke = isinstance(outcome, Surfacing)
            first = (
                {m.id for m in outcome.memories[:3]} if isinstance(outcome, Surfacing) else set()
            )
            answers.append(Answer(kind, spoke, bool(gold & first), outcome.confidence, took))
        await app.aclose()
    return answers


class Vectors:
    """Memories and cues by cosine."""

    def __init__(self, store: Store, model: Any) -> None:
        import numpy as np

        self._np, self._model = np, model
        self._ids = [memory["id"] for memory in store.memories]
        self._matrix = np.array(model.embed([m["text"][:600] for m in store.memories]))

    def nearest(self, text: str, count: int) -> list[tuple[str, float]]:
        likeness = self._matrix @ self._np.array(self._model.embed([text[:600]])[0])
        best = self._np.argsort(-likeness)[:count]
        return [(self._ids[place], float(likeness[place])) for place in best]


def words_of(cue: Cue) -> str:
    values = (value for value in cue.args.values() if isinstance(value, str))
    return cue.text or " ".join(value for value in values)


def peers(
    store: Store, cues: Sequence[tuple[str, Cue, set[str]]], model: Any
) -> tuple[list[Answer], list[Answer]]:
    """The answers by reciprocal rank fusion, and those by cosine, which have only their scores."""
    db = plain_fts(store.memories)
    vectors = Vectors(store, model) if model is not None else None
    fused, cosine = [], []
    for kind, cue, gold in cues:
        text = words_of(cue)
        collected = [plain_search(db, text)]
        if vectors is not None:
            near = vectors.nearest(text, 10)
            collected.append([memory_id for memory_id, _ in near])
            useful = bool(gold & {memory_id for memory_id, _ in near[:3]})
            cosine.append(Answer(kind, False, useful, near[0][1]))
        scores: dict[str, float] = defaultdict(float)
        for ranking in collected:
            for rank, memory_id in enumerate(ranking, 1):
                scores[memory_id] += 1.0 / (RRF_K + rank)
        best = sorted(scores, key=lambda memory_id: -scores[memory_id])[:3]
        top = scores[best[0]] if best else 0.0
        fused.append(Answer(kind, top >= RRF_LEAST, bool(gold & set(best)), top))
    return fused, cosine


def auc(answers: Sequence[Answer]) -> float:
    """The probability that a relevant cue scores above an irrelevant one."""
    ranked = sorted((a for a in answers if a.relevant or a.irrelevant), key=lambda a: a.confidence)
    seen_irrelevant, above, relevant = 0.0, 0.0, 0
    at = 0
    while at < len(ranked):
        tied = [a for a in ranked[at:] if a.confidence == ranked[at].confidence]
        bad = sum(a.irrelevant for a in tied)
        above += (len(tied) - bad) * (seen_irrelevant + bad / 2)
        relevant += len(tied) - bad
        seen_irrelevant += bad
        at += len(tied)
    return above / (relevant * seen_irrelevant) if relevant and seen_irrelevant else float("nan")


def share(answers: Sequence[Answer], of: str = "spoke") -> float:
    return sum(getattr(a, of) for a in answers) / len(answers) if answers else float("nan")


def line(name: str, answers: Sequence[Answer]) -> str:
    relevant = [a for a in answers if a.relevant]
    spoke = [a for a in answers if a.spoke and (a.relevant or a.irrelevant)]
    useful = [a for a in relevant if a.spoke and a.useful]
    return (
        f"| {name} | {auc(answers):.3f} | {100 * share([a for a in answers if a.irrelevant]):.1f} "
        f"| {share(relevant):.3f} | {len(useful) / max(1, len(relevant)):.3f} "
        f"| {len(useful) / max(1, len(spoke)):.3f} |"
    )


def at_cover(answers: Sequence[Answer], cover: float) -> list[Answer]:
    """The same answers with another threshold: the score at which the share `cover` of the relevant
    cues is answered.
    """
    scores = sorted((a.confidence for a in answers if a.relevant), reverse=True)
    least = scores[int(cover * len(scores))] if scores else 1.0
    return [
        Answer(a.kind, a.confidence >= least, a.useful, a.confidence, a.milliseconds)
        for a in answers
    ]


def by_class(answers: Sequence[Answer]) -> Iterator[str]:
    yield "| class | n | answered % | useful % |\n|---|---|---|---|"
    for kind in sorted({a.kind for a in answers}):
        chosen = [a for a in answers if a.kind == kind]
        useful = sum(a.spoke and a.useful for a in chosen) / len(chosen)
        yield f"| {kind} | {len(chosen)} | {100 * share(chosen):.1f} | {100 * useful:.1f} |"


async def report(title: str, stores: list[Store], part: float, model: Any) -> None:
    rng = random.Random(3)
    own_answers: list[Answer] = []
    both: list[Answer] = []
    fused: list[Answer] = []
    cosine: list[Answer] = []
    for store in stores:
        cues = [cue for cue in store.cues if rng.random() < part]
        own_answers += await ours(store, cues)
        both += await ours(store, cues, "minilm") if model else []
        rank_fusion, by_cosine = peers(store, cues, model)
        fused += rank_fusion
        cosine += by_cosine
    print(f"\n## {title}: {len(own_answers)} cues\n")
    print("| rule | AUC | FIR % | cover | useful cover | precision |\n|---|---|---|---|---|---|")
    print(line("upwell, as shipped", own_answers))
    if both:
        print(line("upwell, with the model", both))
    print(line(f"RRF ≥ {RRF_LEAST}" + ("" if model else ", words only"), fused))
    if cosine:
        print(line("cosine, at 80 % cover", at_cover(cosine, 0.8)))
    print()
    print("\n".join(by_class(own_answers)))
    if both:
        print("\nwith the model\n")
        print("\n".join(by_class(both)))
    took = sorted(a.milliseconds for a in own_answers)
    print(
        f"\nCPU of a decision: p50 {statistics.median(took):.1f} ms, "
        f"p95 {took[int(0.95 * len(took))]:.1f} ms"
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "data", type=Path, metavar="DATA", nargs="?", help="the folder of the data sets"
    )
    parser.add_argument("--only", choices=["coding", "conversations", "together"])
    parser.add_argument("--own", action="store_true", help="the repository's own set")
    parser.add_argument(
        "--share", type=float, default=1.0, help="the share of the cues to use, chosen at random"
    )
    parser.add_argument(
        "--minilm", type=Path, metavar="CACHE", help="also search by meaning (minilm.py)"
    )
    options = parser.parse_args()
    if not options.data and not options.own:
        parser.error("give the folder of the data sets, or --own")
    model = None
    if options.minilm:
        from minilm import MiniLm

        model = MiniLm(options.minilm)
        EMBEDDERS["minilm"] = lambda _: model  # type: ignore[assignment]
        meaning.WAIT_SECONDS = 9.0
    if options.own:
        await report("own", own(), 1.0, model)
        return
    cases = {
        "coding": lambda: coding(options.data),
        "conversations": lambda: conversations(options.data),
        "together": lambda: together(conversations(options.data)),
    }
    for title, stores in cases.items():
        if options.only in (None, title):
            await report(title, stores(), options.share, model)


if __name__ == "__main__":
    asyncio.run(main())
