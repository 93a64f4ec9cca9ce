import pytest

from upwell.ground.errors import StoreUnwritable
from upwell.ground.ledger import TtlStore
from upwell.ground.sqlite.database import open_database
from upwell.ground.types.cue import Rating
from upwell.learn.feedback import (
    MIN_SAMPLES,
    OWNER,
    RETENTION_SECONDS,
    STEP,
    MemoryUse,
    Rated,
    Ratings,
    ScoreSample,
    shifted,
)
from upwell.learn.implicit import Sighting as SeenLog
from upwell.learn.implicit import Uses
from upwell.learn.learned import CASE_SIGN, Learned, LearnedLimits
from upwell.learn.options import LearnOptions
from upwell.testing import ManualClock


class House:
    """A database with its learned values; `another` is a second process."""

    def __init__(self, path):
        self.path = path
        self.clock = ManualClock()
        self.ttl_store = TtlStore(clock=self.clock)
        self.databases = []

    def learned(self, **options):
        database = open_database(self.path / "memory.db", [OWNER], synchronous="FULL")
        self.databases.append(database)
        return Learned(
            Ratings(database),
            Uses(self.ttl_store),
            LearnOptions(**options),
            LearnedLimits(),
            self.clock,
        )

    def rated(self, rating, number, *, memory="m", tool="fs__read"):
        self.clock.advance(1)
        return Rated(
            surfacing=f"s{number}",
            memory=memory,
            rating=rating,
            at=self.clock.now(),
            door="tool",
            tool=tool,
            score=0.7,
            signals={"bm25": 3.0},
        )


@pytest.fixture
async def house(tmp_path):
    result = House(tmp_path)
    yield result
    for database in result.databases:
        await database.aclose()


async def rate(learned, house, rating, count, first=0, **what):
    for number in range(first, first + count):
        await learned.rate([house.rated(rating, number, **what)])


async def test_the_tenth_rating_moves_one_step_and_only_that_tool(house):
    learned = house.learned()
    await rate(learned, house, Rating.NOT_RELEVANT, MIN_SAMPLES - 1, tool="fs__read")
    assert learned.min_score("fs__read") == 0.5
    await rate(learned, house, Rating.NOT_RELEVANT, 1, first=20)
    assert learned.min_score("fs__read") == pytest.approx(shifted(0.5, STEP))
    assert learned.min_score("fs__search") == 0.5


async def test_a_threshold_moves_to_the_bound_and_not_beyond(house):
    learned = house.learned()
    await rate(learned, house, Rating.NOT_RELEVANT, 25)
    assert learned.min_score("fs__read") == pytest.approx(shifted(0.5, 1.0))
    (first,) = await learned.thresholds()
    assert first.samples == 25
    assert first.suggested == pytest.approx(first.min_score)
    assert "25 not relevant" in first.why


async def test_the_later_rating_replaces_the_earlier(house):
    learned = house.learned()
    await rate(learned, house, Rating.NOT_RELEVANT, 5)
    await rate(learned, house, Rating.HELPFUL, 5)
    (first,) = await learned.thresholds()
    assert first.samples == 5
    assert first.evidence == {"helpful": 5}


async def test_three_surfacings_rated_down_demote(house):
    learned = house.learned()
    for _ in range(5):
        await learned.rate([house.rated(Rating.NOT_RELEVANT, 1)])
    assert not learned.is_demoted("m"), "one surfacing is one negative, however often it is rated"
    await rate(learned, house, Rating.ALREADY_KNOWN, 2, first=2)
    assert learned.is_demoted("m")
    await learned.rate([house.rated(Rating.HELPFUL, 9)])
    assert not learned.is_demoted("m")


async def test_being_ignored_counts_weakly_against_a_memory(house):
    learned = house.learned()
    uses = Uses(house.ttl_store)
    for n in range(4):
        sample = ScoreSample(
            surfacing=f"i{n}", memory="m", evidence=MemoryUse.IGNORED, score=0.7, at=0.0
        )
        await uses.add([SeenLog(tool="fs__read", sample=sample)])
    await learned.load_learned()
    assert not learned.is_demoted("m")
    await rate(learned, house, Rating.NOT_RELEVANT, 2)
    assert learned.is_demoted("m")
    deaf = house.learned(auto_tune=False)
    await deaf.load_learned()
    assert not deaf.is_demoted("m")


async def test_one_process_uses_what_another_learns(house):
    first, second = house.learned(), house.learned()
    await second.load_learned()
    await rate(first, house, Rating.NOT_RELEVANT, 12)
    assert second.min_score("fs__read") == 0.5
    await second.load_learned()
    assert second.min_score("fs__read") == first.min_score("fs__read") > 0.5
    assert second.is_demoted("m")


async def test_apply_and_reset(house):
    learned = house.learned()
    await rate(learned, house, Rating.NOT_RELEVANT, 12)
    (before,) = await learned.thresholds()
    assert before.min_score < before.suggested
    await learned.apply()
    assert learned.min_score("fs__read") == pytest.approx(before.suggested)
    assert await learned.reset("m") == 12
    assert not learned.is_demoted("m")
    assert await learned.reset() == 0
    assert learned.min_score("fs__read") == 0.5
    assert await learned.thresholds() == []


async def test_switched_off_nothing_is_moved_or_used(house):
    on, off = house.learned(), house.learned(auto_tune=False)
    await rate(on, house, Rating.NOT_RELEVANT, 12)
    await off.load_learned()
    assert on.min_score("fs__read") > off.min_score("fs__read") == 0.5
    await rate(off, house, Rating.NOT_RELEVANT, 5, first=50)
    await on.load_learned()
    assert (await on.thresholds())[0].samples == 17


async def test_without_ratings_a_threshold_moves_hourly_and_returns(house):
    learned = house.learned()
    uses = Uses(house.ttl_store)
    for n in range(12):
        now = house.clock.now()
        sample = ScoreSample(
            surfacing=f"u{n}", memory="m", evidence=MemoryUse.USED, score=0.6, at=now
        )
        await uses.add([SeenLog(tool="prompt", sample=sample)])
    await learned.tune()
    await learned.load_learned()
    first = learned.min_score("prompt")
    assert shifted(0.5, -0.3) - 1e-9 <= first < 0.5
    await learned.tune()
    await learned.load_learned()
    assert learned.min_score("prompt") == first, "not twice within the hour"
    house.clock.advance(130 * 86_400)
    for _ in range(5):
        house.clock.advance(3601)
        await learned.tune()
    await learned.load_learned()
    assert learned.min_score("prompt") == pytest.approx(0.5, abs=0.01)


async def test_evidence_older_than_a_year_is_removed(house):
    learned = house.learned()
    await rate(learned, house, Rating.NOT_RELEVANT, 3)
    assert learned.is_demoted("m")
    house.clock.advance(RETENTION_SECONDS + 10)
    await learned.tune()
    await learned.load_learned()
    assert not learned.is_demoted("m")


async def test_without_a_memory_nothing_is_learned_and_feedback_reports_this(house):
    learned = Learned(None, Uses(house.ttl_store), LearnOptions(), LearnedLimits())
    await learned.load_learned()
    assert learned.min_score("x") == 0.5
    with pytest.raises(StoreUnwritable, match="cannot be stored"):
        await learned.rate([house.rated(Rating.HELPFUL, 1)])


async def test_observed_use_of_a_case_adds_to_the_threshold_of_the_tool(house):
    learned, case = house.learned(), f"question{CASE_SIGN}document"
    ignored = [
        SeenLog(
            tool=case,
            sample=ScoreSample(
                surfacing=f"s{number}",
                memory="m",
                evidence=MemoryUse.IGNORED,
                score=0.7,
                at=house.clock.now(),
            ),
        )
        for number in range(60)
    ]
    await Uses(house.ttl_store).add(ignored)
    await learned.tune()
    await learned.load_learned()
    assert learned.min_score("prompt", case=case) > learned.min_score("prompt") == 0.5
    assert learned.min_score("prompt", case=f"failed{CASE_SIGN}note") == 0.5
    assert learned.min_score("prompt", case=case, exact=True) < 0.5, "use alone silences nothing"
    assert [threshold.tool for threshold in await learned.thresholds()] == [case]
    await learned.reset()
    assert learned.min_score("prompt", case=case) == 0.5
