"""Measures how many of the facts that an agent used next are still in a shortened tool output.

    python benchmarks/agentwork.py FOLDER                     upwell, head, head and tail, BM25
    python benchmarks/agentwork.py FOLDER --stm PYTHON        a peer, in a venv of its own
    python benchmarks/agentwork.py FOLDER --request           upwell, request known

FOLDER has `items.jsonl`. Each line is one tool output (`text`) of a recorded agent session, with
the `tool`, the agent's thought before the call (`think`) and the last request of the user (`user`).
The facts are `ids`, the names that were new in this output and that the agent's next actions
contain, and `lines`, the lines that the agent edited next. A fact is kept if it is in the shortened
text.

Prints Markdown tables for all outputs and for each tool, kind of text or source, with 95 %
intervals (bootstrap over outputs), upwell's lead over each other method on the same outputs, and
the CPU time.
"""

import argparse
import json
import math
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from compression import Peer
from upwell.ground.text.kind import detect

BUDGETS = ("50%", "25%", "10%", "4000t", "2000t", "1000t")
CHARS_PER_TOKEN = 3.5
Shorten = Callable[[str, str, str, str], tuple[str, float]]
"""(text, budget, question, request) → the shortened text and its CPU seconds."""


def room(text: str, budget: str) -> int:
    """Return how many characters a budget allows."""
    if budget.endswith("t"):
        return int(int(budget[:-1]) * CHARS_PER_TOKEN)
    return int(len(text) * int(budget[:-1]) / 100)


def head_and_tail(text: str, budget: str, query: str, request: str) -> tuple[str, float]:
    size = room(text, budget)
    if len(text) <= size:
        return text, 0.0
    mark = f"\n[… {len(text) - size} characters left out …]\n"
    rest = max(0, size - len(mark))
    first = rest * 6 // 10
    return text[:first] + mark + text[len(text) - (rest - first) :], 0.0


def bm25(text: str, budget: str, query: str, request: str) -> tuple[str, float]:
    """Rank lines by BM25 for the question; head and tail without one."""
    size = room(text, budget)
    if len(text) <= size or not query:
        return head_and_tail(text, budget, query, request)
    rows = text.split("\n")
    words = [Counter(re.findall(r"\w+", row.lower())) for row in rows]
    holding = Counter(word for row in words for word in row)
    question_words = set(re.findall(r"\w+", query.lower()))
    mean = sum(map(len, words)) / len(rows) + 1
    scores = [
        sum(
            math.log(1 + (len(rows) - holding[word] + 0.5) / (holding[word] + 0.5))
            * row[word] * 2.2 / (row[word] + 1.2 * (0.25 + 0.75 * len(row) / mean))
            for word in question_words & row.keys()
        )
        for row in words
    ]  # fmt: skip
    retained: set[int] = set()
    for index in sorted(range(len(rows)), key=lambda index: (-scores[index], index)):
        if len(rows[index]) + 4 <= size:
            size -= len(rows[index]) + 4
            retained.add(index)
    shown = [row if index in retained else "…" for index, row in enumerate(rows)]
    return re.sub(r"(…\n)+", "…\n", "\n".join(shown)), 0.0


def worker(name: str, python: str, *, knows_request: bool = False) -> Shorten:
    peer = Peer(name, python)

    def shorten(text: str, budget: str, query: str, request: str) -> tuple[str, float]:
        answer = peer.compress(text, budget, query, request if knows_request else "")
        return str(answer.get("text", "")), float(str(answer.get("cpu", 0.0)))

    return shorten


def unfolded(text: str) -> str:
    """Return the text, followed by the full path of each entry that it lists below a folder."""
    paths, folder = [text], ""
    for row in text.split("\n"):
        if row.endswith("/") and not row.startswith(" "):
            folder = row
        elif row.startswith(" ") and folder:
            paths.append(folder + row[1:])
    return "\n".join(paths)


def facts(item: dict[str, list[str]], text: str) -> tuple[list[bool], list[bool]]:
    """Tell which names and which lines are in `text`, regardless of blanks and escapes."""
    text = unfolded(text)
    plain = " ".join(text.split())
    bare = " ".join(re.sub(r"\\[nt]", " ", text.replace('\\"', '"')).split())
    names = [name in text or name in bare for name in item["ids"]]
    return names, [line in plain or line in bare for line in item["lines"]]


def mean(values: list[float]) -> float:
    return 100 * sum(values) / len(values) if values else math.nan


def interval(values: list[float]) -> str:
    """Return half the width of the 95 % interval of a mean."""
    source = random.Random(1)
    means = sorted(mean(source.choices(values, k=len(values))) for _ in range(500))
    return f"{(means[487] - means[12]) / 2:.0f}" if values else ""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stm", help="python of a venv with memtomem-stm 0.6.9")
    parser.add_argument("--headroom", help="python of a venv with headroom-ai 0.42")
    parser.add_argument("--question", choices=("none", "think"), default="none")
    parser.add_argument("--request", action="store_true", help="also with the last request")
    parser.add_argument("--by", choices=("tool", "src", "kind"), default="tool")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    lines = (options.folder / "items.jsonl").read_text(encoding="utf-8").splitlines()
    items = [json.loads(line) for line in lines]
    for item in items:
        item["kind"] = str(detect(item["text"]))
    ways: dict[str, Shorten] = {
        "upwell": worker("upwell", sys.executable),
        "head": worker("head", sys.executable),
        "head and tail": head_and_tail,
        "bm25": bm25,
    }
    if options.request:
        ways["upwell, request known"] = worker("upwell", sys.executable, knows_request=True)
    ways |= {"memtomem-stm": worker("memtomem-stm", options.stm)} if options.stm else {}
    ways |= {"headroom": worker("headroom", options.headroom)} if options.headroom else {}
    shares: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    edited: dict[tuple[str, str], list[float]] = defaultdict(list)
    cpu: dict[tuple[str, str], list[float]] = defaultdict(list)
    for way, shorten in ways.items():
        for item in items:
            question = (item["think"] or item["user"])[:600] if options.question != "none" else ""
            for budget in BUDGETS:
                if budget.endswith("t") and len(item["text"]) <= room("", budget):
                    continue
                text, seconds = shorten(item["text"], budget, question, item.get("user", ""))
                names, edits = facts(item, text)
                share = sum(names + edits) / len(names + edits)
                for group in ("all", item[options.by]):
                    shares[way, budget, group].append(share)
                edited[way, budget] += edits
                cpu[way, item[options.by]].append(seconds / len(item["text"]))
    report(list(ways), shares, edited, cpu)


def differences(
    ways: list[str], shares: dict[tuple[str, str, str], list[float]], groups: list[str]
) -> None:
    """Print how many points the last variant of upwell is ahead of each other method, for the same
    outputs. A loss whose interval does not contain zero is in bold.
    """
    best = [way for way in ways if way.startswith("upwell")][-1]
    for other in (way for way in ways if not way.startswith("upwell")):
        print(
            f"\n{best}, points ahead of {other} (95 % interval)\n\n| | "
            + " | ".join(BUDGETS)
            + " |"
        )
        print("|---" * (len(BUDGETS) + 1) + "|")
        for group in groups:
            cells = []
            for budget in BUDGETS:
                pairs = zip(shares[best, budget, group], shares[other, budget, group], strict=True)
                cells.append(difference([ours - theirs for ours, theirs in pairs]))
            print(f"| {group} | " + " | ".join(cells) + " |")


def difference(values: list[float]) -> str:
    if not values:
        return ""
    source = random.Random(1)
    means = sorted(mean(source.choices(values, k=len(values))) for _ in range(500))
    cell = f"{mean(values):+.0f} ({means[12]:+.0f} to {means[487]:+.0f}, n={len(values)})"
    return f"**{cell}**" if means[487] < 0 else cell


def report(
    ways: list[str],
    shares: dict[tuple[str, str, str], list[float]],
    edited: dict[tuple[str, str], list[float]],
    cpu: dict[tuple[str, str], list[float]],
) -> None:
    groups = sorted({group for _, _, group in shares} - {"all"})
    for title, group in (("All outputs", "all"), *((group, group) for group in groups)):
        counts = {budget: len(shares[ways[0], budget, group]) for budget in BUDGETS}
        print(f"\n{title}: facts kept, mean % per output (half of the 95 % interval)\n")
        print("| | " + " | ".join(f"{b}, n={counts[b]}" for b in BUDGETS) + " |")
        print("|---" * (len(BUDGETS) + 1) + "|")
        for way in ways:
            group_shares = [shares[way, budget, group] for budget in BUDGETS]
            cells = [f"{mean(values):.1f} (±{interval(values)})" for values in group_shares]
            print(f"| {way} | " + " | ".join(cells) + " |")
    differences(ways, shares, ["all", *groups])
    print("\nLines that the agent edited next, %\n\n| | " + " | ".join(BUDGETS) + " |")
    print("|---" * (len(BUDGETS) + 1) + "|")
    for way in ways:
        print(f"| {way} | " + " | ".join(f"{mean(edited[way, b]):.1f}" for b in BUDGETS) + " |")
    print("\nCPU, ms per MB\n\n| | " + " | ".join(groups) + " |")
    print("|---" * (len(groups) + 1) + "|")
    for way in ways:
        cells = [f"{1e9 * sum(cpu[way, g]) / max(1, len(cpu[way, g])):.0f}" for g in groups]
        print(f"| {way} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
