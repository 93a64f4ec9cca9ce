"""Questions to documentation: measures how often the answering section is found, and how often a
section is given that answers nothing.

    python benchmarks/docs_questions.py STORES CUES [--out results.jsonl]

STORES has one folder of Markdown for each project (and `NAME-notes` for its CONTRIBUTING, AGENTS
…). CUES has one JSON line for each question: {"id", "store", "class", "door", "prompt" | "tool" +
"args", "expect", "gold": [{"path", "start_line", "end_line"}]}. Each store is imported into an
index of its own. A question goes through the product's cue reader and search. A hit is right if its
lines overlap the gold section. A judge estimates from the signals of the first hit whether the
question is answered; for the figures, every judge is fitted again without the store in question and
its notes. The baseline in the same run is plain BM25 (FTS5, porter) over pieces of 400 characters.
"""

import argparse
import asyncio
import dataclasses
import json
import math
import sqlite3
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from upwell.ground.clock import Deadline
from upwell.ground.sqlite.database import open_database
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import Hit
from upwell.memory.documents.catalog import DocumentCatalog
from upwell.memory.documents.recall import Documents
from upwell.memory.documents.sections.rank import NOTES, PROMPTS, SECOND_SHARE, TOOLS, is_note
from upwell.memory.documents.sections.search import SHARE
from upwell.memory.lookups import TOKENIZER
from upwell.memory.ranking.terms import query_words
from upwell.memory.sources import OWNER, SqliteSources, source_at
from upwell.surface.query import CueReader

KINDS = {
    "prompts": ("pos_docs", "neg_project", "neg_other", "neg_task"),
    "tools": ("pos_tool", "neg_tool"),
    "notes": ("pos_note", "neg_note"),
}
JUDGES = {"prompts": PROMPTS, "tools": TOOLS, "notes": NOTES}
PIECE_CHARS = 400
FALSE_INJECTIONS = 0.10
RIDGE = 3.0

Lines = tuple[str, int, int]


@dataclass(slots=True)
class Answer:
    """The hits for a cue, best first, as (path, first line, last line, share of the best score);
    the probability of the first hit; and the signals by which it was judged.
    """

    cue: Mapping[str, Any]
    kind: str
    found: list[tuple[Lines, float]] = field(default_factory=list)
    score: float = 0.0
    signals: Mapping[str, float] = field(default_factory=dict)

    @property
    def store(self) -> str:
        return str(self.cue["store"]).removesuffix("-notes")

    @property
    def is_positive(self) -> bool:
        return bool(self.cue["expect"] == "surface")

    def rank(self) -> int:
        """The rank of the first hit that overlaps a gold section; 0 for none."""
        return next((at for at, (lines, _) in enumerate(self.found, 1) if self.hits(lines)), 0)

    def hits(self, lines: Lines) -> bool:
        path, first, last = lines
        return any(
            gold["path"] == path and gold["start_line"] <= last and first <= gold["end_line"]
            for gold in self.cue["gold"]
        )

    def is_useful(self, most: int) -> bool:
        """True if one of the first `most` passages answers and would be delivered. A passage after
        the first is delivered only if it scores nearly as well.
        """
        reply = [lines for lines, share in self.found[:most] if share >= SECOND_SHARE]
        return any(map(self.hits, reply))


@dataclass(slots=True)
class Speed:
    """The CPU seconds to build an index, the bytes of its files, and the wall milliseconds of each
    query."""

    seconds: float
    size: int
    query_ms: list[float] = field(default_factory=list)


async def ask_store(folder: Path, cues: Sequence[Mapping[str, Any]]) -> tuple[list[Answer], Speed]:
    """The answers of the product to the cues of one store, and how long it took."""
    with tempfile.TemporaryDirectory() as home:
        database = open_database(Path(home) / "memory.db", [OWNER], synchronous="NORMAL")
        sources = SqliteSources(database)
        await sources.add(source_at(folder, folder))
        documents = Documents(DocumentCatalog(Path(home) / "index.db"), sources)
        began = time.process_time()
        await documents.refresh()
        speed = Speed(
            time.process_time() - began, sum(f.stat().st_size for f in folder.rglob("*.md"))
        )
        reader, answers = CueReader(), []
        for cue in cues:
            query = reader.query(_cue(cue), 10)
            hits: Sequence[Hit] = ()
            if query is not None:
                query = replace(query, awaited=True, scope=replace(query.scope, project=None))
                store = await documents.catalog.store()
                assert store is not None
                before = time.perf_counter()
                hits = await documents.catalog.search(query, Deadline.after(30))
                speed.query_ms.append((time.perf_counter() - before) * 1e3)
            answers.append(_answer(cue, hits))
        await documents.aclose()
        await database.aclose()
    return answers, speed


def _cue(cue: Mapping[str, Any]) -> Cue:
    if cue["door"] == "prompt":
        return Cue(door="prompt", text=cue["prompt"], session="s")
    return Cue(door="tool", tool=cue["tool"], args=cue["args"], session="s")


def _answer(cue: Mapping[str, Any], hits: Sequence[Hit]) -> Answer:
    kind = next(kind for kind, classes in KINDS.items() if cue["class"] in classes)
    answer = Answer(cue, kind)
    for hit in hits:
        assert hit.memory.lines is not None
        lines = (hit.memory.source, *hit.memory.lines)
        answer.found.append((lines, hit.signals[SHARE]))
    if hits:
        answer.signals = hits[0].signals
        answer.score = _unasked(answer)
    return answer


def _unasked(answer: Answer) -> float:
    """The score of the first hit if nobody had asked for the search. The search here is an explicit
    request, whose scores are higher.
    """
    return JUDGES[_judge_of(answer)].probability(answer.signals)


def _judge_of(answer: Answer) -> str:
    kind = "tools" if answer.cue["door"] == "tool" else "prompts"
    return "notes" if is_note(answer.found[0][0][0]) else kind


def fit(names: Sequence[str], examples: Sequence[tuple[Mapping[str, float], bool]]) -> list[float]:
    """Logistic regression with a ridge on standardised signals, by Newton's method; the weights in
    the order of `names`, the constant last."""
    rows = [[signals[name] for name in names] for signals, _ in examples]
    means = [statistics.fmean(column) for column in zip(*rows, strict=True)]
    scales = [statistics.pstdev(column) + 1e-6 for column in zip(*rows, strict=True)]
    x = [[(v - m) / s for v, m, s in zip(row, means, scales, strict=True)] + [1.0] for row in rows]
    size = len(names) + 1
    weights = [0.0] * size
    for _ in range(30):
        gradient = [-RIDGE * w for w in weights[:-1]] + [0.0]
        hessian = [
            [RIDGE * (i == j < size - 1) + 1e-9 * (i == j) for j in range(size)]
            for i in range(size)
        ]
        for row, (_, right) in zip(x, examples, strict=True):
            p = _sigmoid(sum(w * v for w, v in zip(weights, row, strict=True)))
            for i in range(size):
                gradient[i] += row[i] * (right - p)
                for j in range(size):
                    hessian[i][j] += p * (1 - p) * row[i] * row[j]
        weights = [w + step for w, step in zip(weights, _solve(hessian, gradient), strict=True)]
    raw = [w / s for w, s in zip(weights, scales, strict=False)]
    return [*raw, weights[-1] - sum(w * m for w, m in zip(raw, means, strict=True))]


def _sigmoid(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, value))))


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss-Jordan elimination with pivots."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for at in range(len(rows)):
        pivot = max(range(at, len(rows)), key=lambda i: abs(rows[i][at]))
        rows[at], rows[pivot] = rows[pivot], rows[at]
        rows[at] = [value / rows[at][at] for value in rows[at]]
        for i in range(len(rows)):
            if i != at:
                factor = rows[i][at]
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[at], strict=True)]
    return [row[-1] for row in rows]


def left_out(answers: Sequence[Answer]) -> list[Answer]:
    """The answers, scored by judges that were fitted without their store."""
    judged_answers = []
    for store in sorted({answer.store for answer in answers}):
        others = [answer for answer in answers if answer.store != store]
        fitted = {kind: (list(JUDGES[kind].weights), coefficients(kind, others)) for kind in KINDS}
        judged_answers += [_judged(answer, fitted) for answer in answers if answer.store == store]
    return judged_answers


def coefficients(kind: str, answers: Sequence[Answer]) -> list[float]:
    """The coefficients of a judge that is fitted to the cues of its kind. It predicts whether one
    of the first two hits is right.
    """
    examples = [
        (answer.signals, any(answer.hits(lines) for lines, _ in answer.found[:2]))
        for answer in answers
        if answer.kind == kind and answer.signals
    ]
    return fit(list(JUDGES[kind].weights), examples)


def _judged(answer: Answer, fitted: Mapping[str, tuple[list[str], list[float]]]) -> Answer:
    if not answer.signals:
        return answer
    names, weights = fitted[_judge_of(answer)]
    line = sum(w * answer.signals[name] for w, name in zip(weights, names, strict=False))
    return dataclasses.replace(answer, score=_sigmoid(line + weights[-1]))


def plain(folder: Path, cues: Sequence[Mapping[str, Any]]) -> Iterator[Answer]:
    """The answers of BM25 over pieces of 400 characters, with the scores of BM25."""
    db = sqlite3.connect(":memory:")
    db.execute(
        "CREATE VIRTUAL TABLE t USING fts5(path UNINDEXED, first UNINDEXED, last UNINDEXED, "
        f"text, tokenize='{TOKENIZER}')"
    )
    for path in sorted(folder.rglob("*.md")):
        name = path.relative_to(folder).as_posix()
        if not any(part.startswith(".") for part in name.split("/")):
            text = path.read_text(encoding="utf-8", errors="replace")
            db.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", _pieces(name, text))
    for cue in cues:
        text = cue.get("prompt") or " ".join(v for v in cue["args"].values() if isinstance(v, str))
        words = [f'"{word}"' for word in query_words(text)]
        rows = db.execute(
            "SELECT path, first, last, -bm25(t) AS score FROM t WHERE t MATCH ? "
            "ORDER BY score DESC LIMIT 10",
            (" OR ".join(words) or '""',),
        ).fetchall()
        kind = next(kind for kind, classes in KINDS.items() if cue["class"] in classes)
        collected = [((path, first, last), score / rows[0][3]) for path, first, last, score in rows]
        yield Answer(cue, kind, collected, rows[0][3] if rows else 0.0)


def _pieces(name: str, text: str) -> Iterator[tuple[str, int, int, str]]:
    piece: list[str] = []
    first = 1
    for number, line in enumerate(text.split("\n"), 1):
        if piece and (line.startswith("#") or sum(map(len, piece)) + len(line) > PIECE_CHARS):
            yield name, first, number - 1, "\n".join(piece)
            piece, first = [], number
        piece.append(line)
    yield name, first, number, "\n".join(piece)


def table(name: str, answers: Sequence[Answer]) -> Iterator[str]:
    """One row for each kind of cue: recall, and the useful share at the threshold at which at most
    ten of a hundred cues without an answer get a section.
    """
    for kind in KINDS:
        kind_answers = [answer for answer in answers if answer.kind == kind]
        positive = [answer for answer in kind_answers if answer.is_positive]
        silent = sorted(
            (answer.score for answer in kind_answers if not answer.is_positive), reverse=True
        )
        threshold = silent[int(FALSE_INJECTIONS * len(silent))]
        ranks = [answer.rank() for answer in positive]
        recall = [100 * sum(0 < rank <= k for rank in ranks) / len(ranks) for k in (1, 5, 10)]
        answered = [answer for answer in positive if answer.score > threshold]
        false_share = 100 * sum(score > threshold for score in silent) / len(silent)
        useful = [
            100 * sum(answer.is_useful(k) for answer in answered) / len(positive) for k in (1, 2)
        ]
        recalls = " | ".join(f"{value:.1f}" for value in recall)
        yield (
            f"| {kind}, {name} | {recalls} | {false_share:.1f}"
            f" | {100 * len(answered) / len(positive):.0f} | {useful[0]:.1f} | {useful[1]:.1f} |"
        )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("stores", type=Path)
    parser.add_argument("cues", type=Path)
    parser.add_argument("--out", type=Path, help="a file for every answer, one JSON line each")
    options = parser.parse_args()
    cues: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in options.cues.read_text(encoding="utf-8").splitlines():
        cue = json.loads(line)
        cues[cue["store"]].append(cue)
    answers: list[Answer] = []
    peers: list[Answer] = []
    speeds: list[Speed] = []
    for store, store_cues in sorted(cues.items()):
        result, speed = await ask_store((options.stores / store).resolve(), store_cues)
        answers += result
        speeds.append(speed)
        peers += plain(options.stores / store, store_cues)
    print("| | R@1 | R@5 | R@10 | false | answered | useful@1 | useful@2 |")
    print("|---|---|---|---|---|---|---|---|")
    for name, judged in (
        ("sections", left_out(answers)), ("sections as shipped", answers), ("BM25", peers)
    ):  # fmt: skip
        print("\n".join(table(name, judged)))
    for kind in KINDS:
        names = [*JUDGES[kind].weights, "constant"]
        values = coefficients(kind, answers)
        print(kind, {n: round(v, 3) for n, v in zip(names, values, strict=True)})
    report(speeds)
    if options.out:
        rows = (
            {
                "id": answer.cue["id"],
                "score": answer.score,
                "rank": answer.rank(),
                "found": answer.found,
            }
            for answer in answers
        )
        options.out.write_text("".join(json.dumps(row) + "\n" for row in rows))


def report(speeds: Sequence[Speed]) -> None:
    seconds, size = sum(speed.seconds for speed in speeds), sum(speed.size for speed in speeds)
    times = sorted(ms for speed in speeds for ms in speed.query_ms)
    print(
        f"{size / 1e6:.1f} MB built in {seconds:.1f} s of CPU, {size / 1e6 / seconds:.2f} MB/s; "
        f"query p50 {times[len(times) // 2]:.1f} ms, p95 {times[int(0.95 * len(times))]:.1f} ms"
    )


if __name__ == "__main__":
    asyncio.run(main())
