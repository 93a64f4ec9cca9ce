"""The work of compression is linear in the length of the text."""

import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

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
    "numbers": lambda n: "[" + ",".join(["1"] * (n // 2)) + "]",
    "one object": lambda n: "{" + ",".join(f'"{i}":{i % 7}' for i in range(n // 12)) + "}",
    "equal keys": lambda n: "{" + ",".join('"a":1' for _ in range(n // 6)) + "}",
    "entities": lambda n: "<html><body><p>" + "&amp;" * (n // 5),
    "unclosed tags": lambda n: "<!doctype html><html><body>" + "<p><b><i>" * (n // 9),
    "formatting tags": lambda n: (
        "<html><body>" + "".join(f"<a><b><i><font color={i}>" for i in range(n // 25))
    ),
    "open brackets": lambda n: "[" * n,
    "settings": lambda n: "[s]\na=b\n" * (n // 8),
    "hunks": lambda n: (
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n" + "@@ -1,1 +1,1 @@\n-a\n+b\n" * (n // 22)
    ),
    "short fields": lambda n: "a:" * (n // 2),
    "combining marks": lambda n: "e" + "\u0301" * n,
}
SMALL, FACTOR = 16_000, 4


@pytest.fixture(autouse=True, scope="module")
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


MEGABYTES = 4
MOST_STEPS = 25
"""The limit of CPU time per character. The unit is one iteration of a loop over the matches of a
regular expression, measured in the same process. The slowest case, nested arrays, takes about
ten."""
MEASURE = """
import re, sys, time
from pathlib import Path
sys.path[:0] = [sys.argv[1]]
from test_compress_hostile import CASES
from upwell.compress import compress
compress("warm up " * 2_000, max_tokens=100)
begun = time.process_time()
for match in re.finditer("a", "a" * 1_000_000):
    match.end()
step = time.process_time() - begun
text = CASES[sys.argv[2]](int(sys.argv[3]))
begun = time.process_time()
compress(text, max_tokens=2_000, query="where is the error")
status = Path("/proc/self/status").read_text()  # getrusage would include the parent's peak
print((time.process_time() - begun) / step, int(status.partition("VmHWM:")[2].split()[0]) // 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    ["deep arrays", "deep objects", "numbers", "one object", "equal keys", "entities", "settings",
     "unclosed tags", "formatting tags", "open brackets", "headings", "newlines", "hunks"],
)  # fmt: skip
def test_megabytes_take_bounded_time_and_memory(case: str) -> None:
    arguments = [str(Path(__file__).parent), case, str(MEGABYTES * 1_000_000)]
    run = [sys.executable, "-c", MEASURE, *arguments]
    output = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    steps, megabytes = map(float, output.split())
    assert megabytes <= 200
    assert steps <= MOST_STEPS * MEGABYTES
