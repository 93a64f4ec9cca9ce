"""The ratings of one principal affect nobody else."""

import pytest
from tests.unit.surface.test_learning import Stage, hit, read

from upwell.ground.errors import UsageError
from upwell.ground.ledger import EntryKind
from upwell.ground.types.cue import Feedback, Rating, Surfacing
from upwell.ground.types.rpc import Principal
from upwell.learn.budgets import Budgets, ResultReport
from upwell.surface.record import MAX_RATINGS

ADA, BOB = Principal("ada"), Principal("bob")
DAYS_8 = 8 * 86_400


@pytest.fixture
async def stage(tmp_path):
    result = Stage(tmp_path)
    yield result
    await result.surfacer.aclose()
    await result.database.aclose()


async def said_to(stage, principal, session):
    stage.clock.advance(DAYS_8)
    return await stage.surfacer.surface(read(session=session, principal=principal))


async def rated_down(stage, principal, times):
    for number in range(times):
        outcome = await said_to(stage, principal, f"{principal.name} {number}")
        if isinstance(outcome, Surfacing):
            feedback = Feedback(surfacing_id=outcome.id, rating=Rating.NOT_RELEVANT)
            await stage.surfacer.ratings.rate(feedback, principal)


async def test_a_memory_that_one_rated_down_still_surfaces_for_the_others(stage):
    stage.recall.hits = [hit("m1", 0.9)]
    await rated_down(stage, BOB, 12)
    assert not isinstance(await said_to(stage, BOB, "last"), Surfacing)
    assert isinstance(await said_to(stage, ADA, "ada"), Surfacing)
    assert isinstance(await said_to(stage, Principal(), "owner"), Surfacing)


async def test_a_principal_rates_its_own_surfacings_only(stage):
    stage.recall.hits = [hit("m1", 0.9)]
    outcome = await said_to(stage, ADA, "ada")
    feedback = Feedback(surfacing_id=outcome.id, rating=Rating.NOT_RELEVANT)
    with pytest.raises(UsageError, match="no surfacing"):
        await stage.surfacer.ratings.rate(feedback, BOB)
    assert await stage.surfacer.ratings.rate(feedback, ADA)
    assert await stage.surfacer.ratings.rate(feedback)


async def test_a_principal_has_a_quota(stage):
    stage.recall.hits = [hit("m1", 0.9)]
    outcome = await said_to(stage, BOB, "s")
    feedback = Feedback(surfacing_id=outcome.id, rating=Rating.HELPFUL)
    for _ in range(MAX_RATINGS):
        await stage.surfacer.ratings.rate(feedback, BOB)
    with pytest.raises(UsageError, match="in an hour"):
        await stage.surfacer.ratings.rate(feedback, BOB)
    assert await stage.surfacer.ratings.rate(feedback)


async def test_a_report_of_another_moves_no_budget(stage):
    budgets = Budgets(stage.ttl_store, enabled=True)
    for number in range(50):
        await budgets.report("fs__read", ResultReport.TOO_LONG, f"forged {number}", rater="bob")
    remarks = await budgets.missed()
    assert all(remark.text.startswith("bob: ") for remark in remarks["fs__read"])
    assert not await stage.ttl_store.scan(EntryKind.COMPRESSION_REPORT)
