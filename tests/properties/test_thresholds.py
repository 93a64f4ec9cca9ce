"""Thresholds stay within bounds for any ratings in any order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from upwell.ground.types.cue import Rating
from upwell.learn.feedback import (
    HIGHEST_SHIFT,
    IGNORED_WEIGHT,
    LOWEST_SHIFT,
    MAX_IGNORED,
    MAX_SCORE,
    MIN_SCORE,
    NEGATIVE,
    STEP,
    MemoryUse,
    ScoreSample,
    negatives,
    shifted,
    stepped,
    target_shift,
)

DAY = 86_400.0
samples = st.builds(
    ScoreSample,
    surfacing=st.integers(0, 40).map("s{}".format),
    memory=st.sampled_from(["a", "b", "c"]),
    evidence=st.sampled_from([*Rating, *MemoryUse]),
    score=st.floats(0, 1),
    at=st.floats(0, 200 * DAY),
)


@settings(max_examples=1000, deadline=None)
@given(st.lists(samples, max_size=60), st.floats(0, 1))
def test_a_thousand_sequences_never_leave_the_bounds(sequence, base):
    shift = 0.0
    for end in range(0, len(sequence) + 1, 7):
        expected = target_shift(sequence[:end], now=200 * DAY)
        assert LOWEST_SHIFT <= expected <= HIGHEST_SHIFT
        new_shift = stepped(shift, expected)
        assert abs(new_shift - shift) <= STEP + 1e-9
        shift = new_shift
        threshold = shifted(base, shift)
        assert min(MIN_SCORE, base) <= threshold <= max(MAX_SCORE, base)
    assert 0.30 < shifted(0.5, shift) < 0.75, "neither wedged open nor shut"


@settings(max_examples=200, deadline=None)
@given(st.lists(samples, min_size=10, max_size=40), st.floats(0.05, 0.95))
def test_helpful_never_raises_and_not_relevant_never_lowers(sequence, score):
    now = 200 * DAY
    before = target_shift(sequence, now)
    for verdict, forbidden_sign in ((Rating.HELPFUL, 1), (Rating.NOT_RELEVANT, -1)):
        first = ScoreSample(surfacing="new", memory="a", evidence=verdict, score=score, at=now)
        has_effect = len({sample.surfacing for sample in sequence}) >= 10
        after = target_shift([*sequence, first], now)
        if has_effect:
            assert (after - before) * forbidden_sign <= 1e-4


@settings(max_examples=300, deadline=None)
@given(st.lists(samples, max_size=40))
def test_being_ignored_alone_demotes_nothing(sequence):
    rated = [sample for sample in sequence if sample.evidence in NEGATIVE]
    assert 0 <= negatives(sequence) <= len(rated) + MAX_IGNORED
    ignored = [sample for sample in sequence if sample.evidence is MemoryUse.IGNORED]
    assert negatives(ignored) == min(MAX_IGNORED, len(ignored) * IGNORED_WEIGHT)
