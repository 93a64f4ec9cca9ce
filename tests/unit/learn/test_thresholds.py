import pytest

from upwell.ground.types.surfacing import Rating
from upwell.learn.feedback import negatives
from upwell.learn.thresholds import HALF_LIFE_SECONDS, MemoryUse, ScoreSample, shifted, target_shift

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


@pytest.mark.parametrize(
    ("verdict", "low", "high"),
    [
        (Rating.HELPFUL, 0.37, 0.499),
        (Rating.PARTIALLY_HELPFUL, 0.5, 0.5),
        (Rating.NOT_RELEVANT, 0.6, 0.74),
        (Rating.ALREADY_KNOWN, 0.55, 0.74),
        (MemoryUse.USED, 0.42, 0.499),
        (MemoryUse.IGNORED, 0.501, 0.58),
    ],
)
def test_ten_equal_ratings_move_the_threshold(verdict, low, high):
    assert low - 1e-6 <= threshold(said(verdict, 10)) <= high + 1e-6


def test_scores_that_keep_their_promise_keep_the_threshold():
    stored = [*said(Rating.HELPFUL, 14, score=0.7), *said(Rating.NOT_RELEVANT, 6, first=14)]
    assert threshold(stored) == pytest.approx(0.5, abs=0.01)


def test_neutral_evidence_keeps_the_configured_threshold():
    bad = said(Rating.NOT_RELEVANT, 4)
    some = [*bad, *said(Rating.PARTIALLY_HELPFUL, 6, first=4)]
    more = [*bad, *said(Rating.PARTIALLY_HELPFUL, 60, first=4)]
    assert 0.5 < threshold(more) < threshold(some)


def test_without_new_evidence_a_threshold_returns():
    bad = said(Rating.NOT_RELEVANT, 12)
    later = [threshold(bad, now=NOW + n * HALF_LIFE_SECONDS) for n in (0, 2, 4, 8)]
    assert later == sorted(later, reverse=True)
    assert later[-1] == pytest.approx(0.5, abs=0.02)


def test_three_memories_of_one_surfacing_are_one_sample():
    together = [
        ScoreSample(surfacing="s1", memory=f"m{n}", evidence=Rating.NOT_RELEVANT, score=0.7, at=NOW)
        for n in range(30)
    ]
    assert threshold(together) == 0.5


def test_observed_use_adds_little():
    ignored = said(MemoryUse.IGNORED, 1000, first=50)
    assert threshold(ignored) <= shifted(0.5, 0.3) + 1e-5
    helpful = said(Rating.HELPFUL, 10)
    assert threshold([*helpful, *ignored]) < 0.5


@pytest.mark.parametrize("base", [0.0, 1.0])
def test_always_and_never_stay(base):
    assert threshold(said(Rating.NOT_RELEVANT, 50), base) == base


def test_a_later_helpful_rating_replaces_a_negative_one():
    against = [
        ScoreSample(surfacing=f"s{at}", memory="m", evidence=verdict, score=0.7, at=at)
        for at, verdict in enumerate([Rating.NOT_RELEVANT, Rating.ALREADY_KNOWN, Rating.HELPFUL])
    ]
    assert negatives(against) == 1
    assert negatives(against[:2]) == 2
    helpful_first = [against[2].__class__(**_at(against[2], -1)), *against[:2]]
    assert negatives(helpful_first) == 2


def _at(sample, at):
    names = ("surfacing", "memory", "evidence", "score")
    return {"at": at, **{name: getattr(sample, name) for name in names}}
