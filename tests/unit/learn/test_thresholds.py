import pytest

from upwell.ground.types.cue import Rating
from upwell.learn.feedback import MemoryUse, ScoreSample, shifted, target_shift

NOW = 1_000_000_000.0


def said(verdict, number, *, score=0.7, at=NOW, first=0):
    return [
        ScoreSample(surfacing=f"s{first + n}", memory="m", evidence=verdict, score=score, at=at)
        for n in range(number)
    ]


def threshold(samples, base=0.5, now=NOW):
    return shifted(base, target_shift(samples, now))


@pytest.mark.parametrize("verdict", [*Rating, *MemoryUse])
def test_nine_surfacings_change_nothing(verdict):
    assert threshold(said(verdict, 9)) == pytest.approx(0.5)


def test_neutral_evidence_keeps_the_configured_threshold():
    bad = said(Rating.NOT_RELEVANT, 4)
    some = [*bad, *said(Rating.PARTIALLY_HELPFUL, 6, first=4)]
    more = [*bad, *said(Rating.PARTIALLY_HELPFUL, 60, first=4)]
    assert 0.5 < threshold(more) < threshold(some)


def test_three_memories_of_one_surfacing_are_one_sample():
    together = [
        ScoreSample(surfacing="s1", memory=f"m{n}", evidence=Rating.NOT_RELEVANT, score=0.7, at=NOW)
        for n in range(30)
    ]
    assert threshold(together) == 0.5


@pytest.mark.parametrize("base", [0.0, 1.0])
def test_always_and_never_stay(base):
    assert threshold(said(Rating.NOT_RELEVANT, 50), base) == base
