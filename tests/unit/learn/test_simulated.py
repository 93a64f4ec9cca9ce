"""Tools whose scores are too high, too low or right, over weeks of feedback."""

import random

import pytest

from upwell.ground.types.cue import Rating
from upwell.learn.feedback import MemoryUse, ScoreSample, shifted, stepped, target_shift

HOUR = 3600.0


def odds(p, by):
    ratio = p / (1 - p) * 2.718281828**by
    return ratio / (1 + ratio)


def lived(bias, *, rated, seeds=range(4), calls=300):
    """Simulate calls with feedback, once for each seed.

    Return [said, relevant] of the second half at a threshold of 0.5, the same at the learned
    threshold (both summed over `seeds`), and the mean of the final thresholds. A memory of score
    `p` is relevant with probability `p`, moved by `bias` log-odds. One relevant memory in three is
    seen to be used.
    """
    plain, tuned, ends = [0, 0], [0, 0], []
    for seed in seeds:
        dice, samples, shift = random.Random(seed), [], 0.0
        for call in range(calls):
            p = min(0.99, max(0.01, dice.betavariate(1.3, 1.3)))
            relevant = dice.random() < odds(p, bias)
            threshold = shifted(0.5, shift)
            if call > calls // 2:
                for result, least in ((plain, 0.5), (tuned, threshold)):
                    result[0] += p >= least
                    result[1] += relevant and p >= least
            if p < threshold:
                continue
            verdict = MemoryUse.USED if relevant and dice.random() < 1 / 3 else MemoryUse.IGNORED
            if dice.random() < rated:
                verdict = Rating.HELPFUL if relevant else Rating.NOT_RELEVANT
            at = call * HOUR
            samples.append(
                ScoreSample(surfacing=str(call), memory="m", evidence=verdict, score=p, at=at)
            )
            shift = stepped(shift, target_shift(samples, at))
        ends.append(shifted(0.5, shift))
    return plain, tuned, sum(ends) / len(ends)


@pytest.mark.parametrize("rated", [0.0, 0.3])
def test_scores_that_promise_too_much_are_believed_less(rated):
    plain, tuned, end = lived(-2.0, rated=rated)
    assert end > 0.54
    assert tuned[1] / tuned[0] > plain[1] / plain[0], (
        "a larger share of the surfaced memories is relevant"
    )
