"""Counts the lines of shortened tool outputs that stand under a heading that is not theirs.

    python benchmarks/layouts.py [--tokens N]… [--stm PYTHON]

The texts are those of `tests/layouts.py`. Prints a Markdown table with, for each layout and budget,
the findings under a wrong heading and those under their own: for upwell, for a text cut to its head
and tail and, with the Python of an environment that has it, for memtomem-stm. Then the sums over
all layouts.
"""

import argparse
from collections import Counter
from collections.abc import Callable
from functools import partial

from tests.layouts import Reading, documents, read, read_json, texts

from compression import Peer
from upwell.compress import compress
from upwell.ground.text.kind import detect
from upwell.ground.text.tokens import chars_per_token


def head_and_tail(text: str, tokens: int) -> str:
    """Return the first and the last half of what a budget allows."""
    half = int(chars_per_token(text, tokens) * tokens / 2)
    return text if len(text) <= 2 * half else f"{text[:half]}\n…\n{text[-half:]}"


def read_document(text: str) -> Reading:
    """Read a JSON document or, if it was cut, its lines."""
    try:
        return read_json(text)
    except ValueError:
        return read(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[500, 1000, 2000, 4000])
    parser.add_argument("--stm", metavar="PYTHON", help="of an environment with memtomem-stm")
    given = parser.parse_args()
    shorten: dict[str, Callable[[str, int], str]] = {
        "upwell": lambda text, tokens: compress(text, max_tokens=tokens).text,
        "head and tail": head_and_tail,
    }
    if given.stm:
        peer = Peer("memtomem-stm", given.stm)
        shorten["memtomem-stm"] = lambda text, tokens: str(
            peer.compress(text, f"{tokens}t", "").get("text", "")
        )
    print("| layout | kind |", " | ".join(f"{budget} tokens" for budget in given.tokens), "|")
    print("|---|---|" + "---|" * len(given.tokens))
    sums: Counter[tuple[str, int, str]] = Counter()
    readings = {layout.name: partial(read, below=layout.below) for layout in texts()}
    all_texts = {layout.name: layout.text for layout in texts()} | documents()
    for name, text in all_texts.items():
        cells = []
        for budget in given.tokens:
            counts = []
            for method, shortened in shorten.items():
                reading = readings.get(name, read_document)(shortened(text, budget))
                sums[method, budget, "wrong"] += len(reading.wrong)
                sums[method, budget, "kept"] += len(reading.right)
                counts.append(f"{len(reading.wrong)} + {len(reading.right)}")
            cells.append(", ".join(counts))
        print(f"| {name} | {detect(text)} |", " | ".join(cells), "|")
    for method in shorten:
        cells = [f"{sums[method, n, 'wrong']} + {sums[method, n, 'kept']}" for n in given.tokens]
        print(f"| **all, {method}** | |", " | ".join(cells), "|")
    print(
        "\nEach cell: findings under a wrong heading + those under their own;", *shorten, sep=" · "
    )


if __name__ == "__main__":
    main()
