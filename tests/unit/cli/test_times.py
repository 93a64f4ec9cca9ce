"""Durations and times of the command line."""

import pytest

from upwell.cli.times import days_since
from upwell.ground.errors import UsageError


@pytest.mark.parametrize(
    ("since", "days"), [("1d", 1), ("7d", 7), ("36h", 2), ("5m", 1), ("2w", 14), ("90d", 90)]
)
def test_a_duration_covers_as_many_days_as_it_says(since: str, days: int) -> None:
    assert days_since(since) == days


@pytest.mark.parametrize("since", ["91d", "2199-01-01"])
def test_days_that_were_not_counted_are_refused(since: str) -> None:
    with pytest.raises(UsageError, match="at most 90 days"):
        days_since(since)
