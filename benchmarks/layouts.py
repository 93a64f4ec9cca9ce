"""Counts the lines of shortened tool outputs that stand under a heading that is not theirs.

    python benchmarks/layouts.py [--tokens N]…

The texts are those of `tests/layouts.py`. Prints a Markdown table with, for each layout and budget,
the findings under a wrong heading, and the findings kept under their own heading by upwell and by a
text cut to its head and tail.
"""

import argparse

from tests.layouts import documents, read, read_json, texts

from upwell.compress import compress
from upwell.ground.text.kind import detect
from upwell.ground.text.tokens import chars_per_token


def head_and_tail(text: str, tokens: int) -> str:
    """Return the first and the last half of what a budget allows."""
    half = int(chars_per_token(text, tokens) * tokens / 2)
    return text if len(text) <= 2 * half else f"{text[:half]}\n…\n{text[-half:]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[500, 1000, 2000, 4000])
    budgets = parser.parse_args().tokens
    print("| layout | kind |", " | ".join(f"{budget} tokens" for budget in budgets), "|")
    print("|---|---|" + "---|" * len(budgets))
    total = 0
    for layout in texts():
        cells = []
        for budget in budgets:
            mine = read(compress(layout.text, max_tokens=budget).text, below=layout.below)
            other = read(head_and_tail(layout.text, budget), below=layout.below)
            total += len(mine.wrong)
            cells.append(f"{len(mine.wrong)} wrong, {len(mine.right)} kept ({len(other.right)})")
        print(f"| {layout.name} | {detect(layout.text)} |", " | ".join(cells), "|")
    for name, text in documents().items():
        mine = [read_json(compress(text, max_tokens=budget).text) for budget in budgets]
        total += sum(len(reading.wrong) for reading in mine)
        cells = [f"{len(wrong)} wrong, {len(right)} kept" for right, wrong in mine]
        print(f"| {name} | {detect(text)} |", " | ".join(cells), "|")
    print(f"\n{total} findings under a wrong heading.")


if __name__ == "__main__":
    main()
