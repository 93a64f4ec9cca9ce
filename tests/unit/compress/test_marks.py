"""The marks of a shortened text add up to the figures of its notice, and to what is missing."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from upwell.compress import compress
from upwell.ground.types.compression import Compressed

CORPUS = Path(__file__).parents[3] / "benchmarks" / "corpus"
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in sorted(CORPUS.iterdir())}
TEXTS["paths"] = "".join(f"src/harbor/quay{n // 24}/crane_{n}.py\n" for n in range(120))
TEXTS["matches"] = "".join(f"src/quay{n // 9}.py:{n}:lift(crane_{n})\n" for n in range(120))
TEXTS["log"] = "".join(
    f"2026-03-01 10:{n % 60:02}:00 INFO berth-{n % 7} ping {n} ms\n" + "still waiting\n" * (n % 9)
    for n in range(90)
)
SHIPS = [
    {"id": n, "name": f"ship {n}", "crew": [f"sailor {n}-{m}" for m in range(n % 6)],
     "log": {"text": f"left port {n} " * (n % 40), "day": n}}
    for n in range(60)
]  # fmt: skip
TEXTS["records"] = json.dumps(SHIPS)
TEXTS["object"] = json.dumps({f"part {n}": {"ships": SHIPS[n : n + 9], "n": n} for n in range(9)})

LINES = re.compile(r"^\[…(\d+)(?:→\d+| lines?, \d+ \w+)?\]$", re.M)
CHARACTERS = re.compile(r" \[…(\d+) chars\] ")
NOTE = re.compile(
    r"\[(?:([\d,]+) of ([\d,]+) lines)?(?: and )?(?:([\d,]+) of [\d,]+ characters)? left out\]\Z"
)


def number(digits: str | None) -> int:
    return int((digits or "0").replace(",", ""))


def sums(done: Compressed) -> Counter[str]:
    """Return the figures of the notice, without zeros."""
    return Counter({part.what: part.count for part in done.omitted if part.count})


def marked_in_json(value: object) -> Counter[str]:
    """Return the sums of all marks in a shortened JSON document."""
    marks: Counter[str] = Counter()
    if isinstance(value, list):
        for item in value:
            marks += marked_in_json(item)
        *_, last = value or [None]
        if isinstance(last, str) and last.startswith("… "):
            marks += mark(last[2:], "items")
        elif isinstance(last, dict) and list(last) == ["…"]:
            # The loop over the items has read this mark as one of an object.
            marks += mark(last["…"], "items")
            marks -= mark(last["…"], "keys")
    elif isinstance(value, dict):
        for name, item in value.items():
            if name == "…" and item != "table":
                marks += mark(item, "keys")
            else:
                marks += marked_in_json(item)
    elif isinstance(value, str):
        marks["characters"] += sum(number(cut) for cut in re.findall(r"…\(\+([\d,]+)\)$", value))
    return +marks


def mark(text: str, noun: str) -> Counter[str]:
    """Return the figures of one mark."""
    marks: Counter[str] = Counter()
    if shortened := re.search(r"([\d,]+) of [\d,]+ \w+ shortened", text):
        marks["items shortened"] = number(shortened[1])
    if missing := re.search(r"([\d,]+)(?: of [\d,]+ \w+)? left out|\+([\d,]+) ", text):
        marks[noun] = number(missing[1] or missing[2])
    return marks


BUDGETS = [{"max_chars": share} for share in (50, 25, 10)] + [
    {"max_tokens": tokens} for tokens in (4_000, 2_000, 1_000)
]


@pytest.mark.parametrize("name", TEXTS)
def test_marks_add_up_to_the_notice(name: str) -> None:
    text = TEXTS[name]
    for budget in BUDGETS:
        limits = {k: len(text) * v // 100 if k == "max_chars" else v for k, v in budget.items()}
        done = compress(text, **limits)
        if done.lossless:
            continue
        if text[0] in "{[":
            assert marked_in_json(json.loads(done.text)) == sums(done), limits
            continue
        note = NOTE.search(done.text)
        assert note is not None, done.text[-200:]
        marked = Counter(
            lines=sum(map(number, LINES.findall(done.text))),
            characters=sum(map(number, CHARACTERS.findall(done.text))),
        )
        assert +marked == sums(done), limits
        assert (number(note[1]), number(note[3])) == (marked["lines"], marked["characters"])


@pytest.mark.parametrize("name", ["paths", "matches", "log"])
def test_counts_of_a_folded_list_are_those_of_the_original(name: str) -> None:
    text = TEXTS[name]
    for share in (2, 4, 10):
        done = compress(text, max_chars=len(text) // share)
        if not done.lossless:
            assert [part.total for part in done.omitted] == [text.count("\n")]


def test_paths_shown_and_paths_left_out_are_all_of_them() -> None:
    done = compress(TEXTS["paths"], max_chars=1_000)
    shown = re.findall(r"^ crane_\d+\.py$", done.text, re.M)
    assert len(shown) + sums(done)["lines"] == 120


def test_items_shown_and_items_left_out_are_all_of_them() -> None:
    done = compress(TEXTS["records"], max_chars=2_000)
    rows = [item for item in json.loads(done.text) if not (isinstance(item, dict) and "…" in item)]
    top = re.search(r"(\d+) left out\"\}\]$", done.text)
    assert top is not None
    assert len(rows) + int(top[1]) == 60


def test_a_mark_over_whole_folders_counts_them() -> None:
    paths = TEXTS["paths"]
    done = compress(paths, max_chars=1_000)
    folders = set(re.findall(r"^.*/", paths, re.M))
    shown = set(re.findall(r"^\S+/$", done.text, re.M))
    marked = sum(map(int, re.findall(r"^\[…\d+ lines?, (\d+) folders?\]$", done.text, re.M)))
    assert 0 < marked == len(folders - shown)


def test_the_root_of_json_names_the_few_keys_that_are_left_out() -> None:
    settings = {f"key_{n}": {"value": n, "note": f"setting {n} of the service"} for n in range(80)}
    for extra, named in ((["owner", "history"], True), ([f"field_{n}" for n in range(40)], False)):
        document = {"settings": settings, **{name: [1] * 200 for name in extra}}
        shown = json.loads(compress(json.dumps(document), max_tokens=400).text)
        mark = shown.pop("…", "")
        lost = [name for name in document if name not in shown]
        assert lost
        assert (": " + ", ".join(lost) in mark) is named
