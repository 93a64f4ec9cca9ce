"""The gain in one sentence."""

import pytest

from upwell.app.gain import sentence


@pytest.mark.parametrize(
    ("results", "words"),
    [(1, "1 long result became 94 % shorter."), (2, "2 long results became 94 % shorter.")],
)
def test_the_sentence_counts_in_english(results: int, words: str) -> None:
    total = {"results": results, "saved": 94, "before": 100, "net": 90, "money": None}
    said = sentence({"total": total, "days": 30})
    assert said == f"upwell kept 90 tokens out of the context in 30 days: {words}"


def test_nothing_shortened_is_said_plainly() -> None:
    assert sentence({"total": {"results": 0}, "days": 30}) == "Nothing was shortened yet."
