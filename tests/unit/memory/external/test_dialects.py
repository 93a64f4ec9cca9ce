"""Answers of memory servers are untrusted: parsing takes linear time."""

from time import process_time

import pytest

from upwell.memory.external.dialects import (
    UnreadableResult,
    basic_memory,
    memory_service,
    memtomem,
    official,
    upwell,
)
from upwell.memory.external.ltm import _memory

READERS = (memtomem, memory_service, basic_memory, official, upwell)
SMALL, LARGE = 16_000, 4_000_000
SHAPES = {
    "numbers without an end": "1. a\n",
    "one number, then hashes": "1. a\n   Hash: x\n",
    "ends without a number": "   Hash: x\n   Created: y\n",
    "hashes in one line": "   Hash: x",
    "a half head": "[1] 1.1 | [",
    "heads of memtomem": "[1] 1.1 | [t] s\n",
    "cited heads": "[a] (1.0, id ",
    "whole cited heads": "[a] (1.0, id x)\n",
    "digits": "9",
    "brackets": "[",
    "lines": "\n",
    "blanks": " ",
}
BEFORE = ("", "[a] (1.0, id ", "[1] ", "[1] 1.", "1. ", "1. a\n   Hash: ", "[1] 1.0 | [")


def seconds(body: str) -> float:
    started = process_time()
    for read in READERS:
        try:
            for entry in read(body)[:40]:
                _memory(entry)
        except UnreadableResult:
            pass
    return process_time() - started


@pytest.mark.parametrize("shape", SHAPES)
def test_no_answer_takes_longer_than_reading_it(shape):
    piece = SHAPES[shape]
    for before in BEFORE:
        assert seconds(before + piece * (SMALL // len(piece))) < 0.5, before
    for before in BEFORE[:2]:
        assert seconds(before + piece * (LARGE // len(piece))) < 15, before


def test_a_numbered_memory_may_have_numbered_lines():
    end = "\n   Hash: abc\n   Created: 2026-01-01\n"
    body = f"Found 2 memories:\n\n1. Steps:\n1. build\n2. ship{end}\n2. Second{end}"
    assert [entry.text for entry in memory_service(body)] == ["Steps:\n1. build\n2. ship", "Second"]


def test_invalid_scores_are_ignored():
    for score in (10**400, float("nan"), float("inf"), "0.5"):
        (result,) = memtomem({"results": [{"content": "a", "score": score}]})
        assert result.score is None


def test_tags_are_bounded():
    tags = ["t" * 10_000] * 1_000
    (result,) = memtomem({"results": [{"content": "a", "tags": tags}]})
    assert len(result.tags) == 20
    assert max(map(len, result.tags)) == 100


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (memtomem, "No results found."),
        (memory_service, "No memories found"),
        (memory_service, "Found 0 memories"),
        (basic_memory, "No results"),
        (basic_memory, "# Search Complete - nothing"),
        (upwell, "Nothing is remembered about 'x'."),
    ],
)
def test_an_answer_without_hits_is_empty(read, body):
    assert read(body) == []
