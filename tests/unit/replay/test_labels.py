"""Samples of surfaced memories, the confidence interval of a share, and thresholds from answers."""

import pytest

from upwell.ground.types.memory import Hit, Memory
from upwell.replay.report import Label, ReplaySample, fitted, share_of
from upwell.replay.run import ReplayDecision


def decision(number: int) -> ReplayDecision:
    hit = Hit(memory=Memory(text=str(number)), score=0.5)
    moment = "question"
    return ReplayDecision(
        session="s", i=number, t=number, door="prompt", moment=moment, outcome="said", hits=(hit,)
    )


def test_a_sample_is_drawn_from_all_and_the_same_every_time() -> None:
    drawn = []
    for _ in range(2):
        sample = ReplaySample(10)
        for number in range(1_000):
            sample.offer(decision(number))
        drawn.append([hit.decision.i for hit in sample.sampled_hits()])
    assert drawn[0] == drawn[1] == sorted(drawn[0])
    assert len(drawn[0]) == 10
    assert max(drawn[0]) > 500


@pytest.mark.parametrize(
    ("useful", "total", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (5, 10, 0.2366, 0.7634),
        (10, 10, 0.7225, 1.0),
        (35, 100, 0.2636, 0.4475),
    ],
)
def test_wilson_intervals(useful: int, total: int, low: float, high: float) -> None:
    labels = [Label(0.5, entry < useful) for entry in range(total)]
    share = share_of([*labels, Label(0.5, None)])
    assert (share.useful, share.answers) == (useful, total)
    assert share.low == pytest.approx(low, abs=1e-3)
    assert share.high == pytest.approx(high, abs=1e-3)


def test_without_answers_there_is_no_share() -> None:
    share = share_of([Label(0.5, None)])
    assert (share.answers, share.low, share.high) == (0, 0.0, 1.0)


def test_a_threshold_separates_useful_from_others() -> None:
    labels = [Label(0.5, False)] * 12 + [Label(0.8, True)] * 8 + [Label(0.8, False)]
    fit = fitted(labels)
    assert fit is not None
    assert (fit.min_score, fit.useful, fit.others) == (0.8, 8, 1)


def test_without_a_separating_threshold_none_is_offered() -> None:
    assert fitted([Label(0.5, False)] * 15 + [Label(0.5, True)] * 10) is None
    assert fitted([Label(0.5, True)] * 5) is None, "too few answers"
