"""Measures the share of facts that survive compression, by upwell and by peers in the same run.

    python benchmarks/compression.py DATA                                upwell and head truncation
    python benchmarks/compression.py DATA --stm PYTHON --headroom PYTHON peers, each in its own venv

A fact is kept if its answer is in the compressed text. Material: `DATA` (a folder with
`manifest.jsonl`, and perhaps `paraphrased.jsonl`), the documents that `gather.py` finds on this
machine, and our own `corpus/`. Prints a Markdown table; `--json` and `--plot` write files.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gather import Document, Needle, gather, with_needles

HERE = Path(__file__).parent
BUDGETS = ("25%", "10%", "5%", "2000t")


class Peer:
    """A worker process with one compressor in it."""

    def __init__(self, name: str, python: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [python, str(HERE / "compression_worker.py"), name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def compress(self, text: str, budget: str, query: str, hint: str = "") -> dict[str, object]:
        request: dict[str, object] = {"text": text, "query": query, "hint": hint}
        if budget.endswith("t"):
            request["max_tokens"] = int(budget[:-1])
        else:
            request["max_chars"] = int(len(text) * int(budget[:-1]) / 100)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline() or '{"error": "the worker ended"}')

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


@dataclass
class Score:
    """Counts of one peer at one budget."""

    retained: int = 0
    questions: int = 0
    kept_query: int = 0
    kept_paraphrased: int = 0
    paraphrased: int = 0
    outputs: int = 0
    within: int = 0
    json_seen: int = 0
    json_valid: int = 0
    errors: int = 0
    sizes: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    kinds: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0, 0]))


@dataclass(frozen=True)
class Case:
    document: Document
    paraphrased: tuple[Needle, ...] = ()


def from_folder(folder: Path) -> Iterator[Case]:
    if not (folder / "manifest.jsonl").exists():
        return
    extra: dict[str, list[Needle]] = defaultdict(list)
    if (folder / "paraphrased.jsonl").exists():
        for line in (folder / "paraphrased.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            extra[row["file"]].append(Needle(row["question"], row["answer"]))
    for line in (folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        text = (folder / row["file"]).read_bytes().decode("utf-8", "replace")
        needles = tuple(Needle(needle["q"], needle["answer"]) for needle in row["needles"])
        yield Case(Document(row["file"], row["kind"], text, needles), tuple(extra[row["file"]]))


def ours() -> Iterator[Case]:
    for path in sorted((HERE / "corpus").iterdir()):
        kind = path.name.split(".")[0]
        document = with_needles(Document(path.name, kind, path.read_text(encoding="utf-8")))
        if document.needles:
            yield Case(document)


def measure(peer: Peer, case: Case, budget: str, score: Score) -> None:
    text, needles = case.document.text, case.document.needles

    def run(query: str) -> str:
        answer = peer.compress(text, budget, query)
        if "error" in answer:
            score.errors += 1
            return ""
        out = str(answer["text"])
        score.outputs += 1
        score.within += fits(text, out, budget)
        score.sizes.append(len(out) / len(text))
        score.cpu.append(float(str(answer["cpu"])) * 1e9 / len(text))
        if is_json(text):
            score.json_seen += 1
            score.json_valid += is_json(out)
        return out

    plain = run("")
    kind = score.kinds[case.document.kind]
    for needle in needles:
        kind[0] += needle.answer in plain
        kind[1] += needle.answer in run(needle.question)
        kind[2] += 1
    for needle in case.paraphrased:
        score.paraphrased += 1
        score.kept_paraphrased += needle.answer in run(needle.question)


def fits(text: str, out: str, budget: str) -> bool:
    """True if the text is within budget. Tokens are counted by tiktoken if it and its files are
    available, else by our estimate.
    """
    if budget.endswith("t"):
        return tokens(out) <= int(budget[:-1])
    return len(out) <= int(len(text) * int(budget[:-1]) / 100)


def tokens(text: str) -> int:
    try:
        import tiktoken

        return len(tiktoken.get_encoding("o200k_base").encode(text, disallowed_special=()))
    except Exception:
        from upwell.ground.text.tokens import count

        return count(text)


def is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def total(score: Score, column: int) -> float:
    questions = sum(kind[2] for kind in score.kinds.values())
    return 100 * sum(kind[column] for kind in score.kinds.values()) / max(1, questions)


def row(name: str, budget: str, score: Score) -> str:
    share = 100 * score.kept_paraphrased / score.paraphrased if score.paraphrased else float("nan")
    valid = 100 * score.json_valid / max(1, score.json_seen)
    return (
        f"| {name} | {budget} | {total(score, 0):.1f} | {total(score, 1):.1f} | {share:.1f} "
        f"| {100 * score.within / max(1, score.outputs):.1f} | {valid:.1f} "
        f"| {statistics.mean(score.sizes or [0]):.3f} | {statistics.median(score.cpu or [0]):.0f} "
        f"| {score.errors} |"
    )


def by_kind(scores: dict[tuple[str, str], Score], budget: str) -> Iterator[str]:
    names = [name for name, at in scores if at == budget]
    yield f"\nBy kind at {budget}, kept without / with the question, %:\n"
    yield "| kind | facts | " + " | ".join(names) + " |"
    yield "|---" * (2 + len(names)) + "|"
    for kind in sorted({kind for name in names for kind in scores[name, budget].kinds}):
        cells = []
        for name in names:
            plain, with_question, count = scores[name, budget].kinds[kind]
            cells.append(
                f"{100 * plain / max(1, count):.0f} / {100 * with_question / max(1, count):.0f}"
            )
        yield f"| {kind} | {count} | " + " | ".join(cells) + " |"


def plot(scores: dict[tuple[str, str], Score], path: Path) -> None:
    """Draw the share of facts kept at each budget: solid with the question, dashed without."""
    colours = {
        "upwell": "#0a7",
        "upwell+minilm": "#06c",
        "memtomem-stm": "#c50",
        "headroom": "#75a",
        "head": "#888",
    }
    budgets = {"5%": 60, "10%": 180, "25%": 300}
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="450" height="330" font-size="11">',
        '<text x="20" y="18">facts kept (solid: question known; dashed: unknown)</text>',
        '<text x="110" y="302">budget, as a share of the original</text>',
    ]
    for share in (0, 25, 50, 75, 100):
        y = 260 - 2.3 * share
        line = f'<path d="M50 {y:.1f}H320" stroke="#ddd"/>'
        parts.append(f'{line}<text x="20" y="{y + 4:.1f}">{share}%</text>')
    parts += [f'<text x="{x - 8}" y="280">{budget}</text>' for budget, x in budgets.items()]
    for index, name in enumerate(dict.fromkeys(name for name, _ in scores)):
        for column, dash in ((0, "4 3"), (1, "0")):
            points = " ".join(
                f"{x},{260 - 2.3 * total(scores[name, budget], column):.1f}"
                for budget, x in budgets.items()
                if (name, budget) in scores
            )
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{colours[name]}" '
                f'stroke-dasharray="{dash}" stroke-width="2"/>'
            )
        y = 40 + 16 * index
        parts.append(f'<text x="330" y="{y}" fill="{colours[name]}">{name}</text>')
    path.write_text("\n".join([*parts, "</svg>"]), encoding="utf-8")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("data", type=Path, help="a folder of documents with their questions")
    parser.add_argument("--stm", help="python of a venv with memtomem-stm 0.6.9")
    parser.add_argument("--headroom", help="python of a venv with headroom-ai 0.42")
    parser.add_argument("--minilm", help="python of a venv with upwell and what minilm.py needs")
    parser.add_argument("--budgets", nargs="+", default=list(BUDGETS))
    parser.add_argument("--no-gather", action="store_true", help="leave out this machine's files")
    parser.add_argument("--limit", type=int, help="the most documents to use")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    cases = [*from_folder(options.data), *ours()]
    if not options.no_gather:
        cases += [Case(document) for document in gather(HERE.parent)]
    cases = cases[: options.limit]
    pythons = {"head": sys.executable, "upwell": sys.executable}
    pythons |= {"upwell+minilm": options.minilm} if options.minilm else {}
    pythons |= {"memtomem-stm": options.stm} if options.stm else {}
    pythons |= {"headroom": options.headroom} if options.headroom else {}
    scores: dict[tuple[str, str], Score] = {}
    for name, python in pythons.items():
        peer = Peer(name, python)
        for budget in options.budgets:
            scores[name, budget] = score = Score()
            for case in cases:
                measure(peer, case, budget, score)
        peer.close()
    facts = sum(len(case.document.needles) for case in cases)
    print(f"{len(cases)} documents, {facts} facts\n")
    print("| compressor | budget | kept, no question % | with % | paraphrased % "
          "| within budget % | JSON valid % | size | CPU ms/MB | errors |")  # fmt: skip
    print("|---" * 10 + "|")
    for (name, budget), score in scores.items():
        print(row(name, budget, score))
    print("\n".join(by_kind(scores, "10%")) if "10%" in options.budgets else "")
    if options.json:
        flat = {f"{name} {budget}": vars(score) for (name, budget), score in scores.items()}
        options.json.write_text(json.dumps(flat, default=dict, indent=1), encoding="utf-8")
    if options.plot:
        plot(scores, options.plot)


if __name__ == "__main__":
    main()
