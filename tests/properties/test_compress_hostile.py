"""The work of compression is linear in the length of the text."""

import gc
import json
import time
from collections.abc import Iterator

import pytest

from upwell.compress import compress

CASES = {
    "headings": lambda n: "\n".join(f"# h{i}\n\ntext {i}" for i in range(n // 18)),
    "no newline": lambda n: "word " * (n // 5),
    "one word": lambda n: "x" * n,
    "deep arrays": lambda n: "[" * (n // 2) + "]" * (n // 2),
    "deep objects": lambda n: '{"a":' * (n // 6) + "1" + "}" * (n // 6),
    "minified script": lambda n: "function a(b){return b+1};var c=a(2);" * (n // 37),
    "minified json": lambda n: json.dumps([{"a": i, "b": "x" * 20} for i in range(n // 40)]),
    "tiny paragraphs": lambda n: "a\n\n" * (n // 3),
    "brackets": lambda n: "[(" * (n // 2),
    "backticks": lambda n: "`" * n,
    "open tags": lambda n: "<!doctype html>" + "<div>" * (n // 5),
    "one open quote": lambda n: "a,b\n" + '"' * n,
    "digits": lambda n: "1234567890" * (n // 10),
    "blanks": lambda n: " " * n,
    "newlines": lambda n: "\n" * n,
    "long string": lambda n: json.dumps("z " * (n // 2)),
    "escapes": lambda n: json.dumps({"a": '\n"\\' * (n // 6)}),
    "frames": lambda n: (
        "Traceback (most recent call last):\n" + '  File "x.py", line 3\n' * (n // 22)
    ),
    "combining marks": lambda n: "e" + "\u0301" * n,
}
SMALL, FACTOR = 16_000, 4


@pytest.fixture(autouse=True)
def lean() -> Iterator[None]:
    """Keep the garbage collector from scanning objects of earlier tests while work is measured."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def cpu_seconds(text: str, query: str) -> float:
    best = float("inf")
    for _ in range(3):
        begun = time.process_time()
        compress(text, max_tokens=500, query=query)
        best = min(best, time.process_time() - begun)
    return best


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("query", ["", "what is word a 3"])
def test_four_times_the_text_takes_at_most_about_eight_times_the_work(
    case: str, query: str
) -> None:
    small, large = CASES[case](SMALL), CASES[case](SMALL * FACTOR)
    compress(small, max_tokens=500, query=query)
    assert cpu_seconds(large, query) <= 2 * FACTOR * cpu_seconds(small, query) + 0.05


@pytest.mark.parametrize("case", CASES)
def test_the_result_is_within_budget(case: str) -> None:
    assert len(compress(CASES[case](SMALL), max_chars=900).text) <= 900
