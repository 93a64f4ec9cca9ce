"""Durations and times of the command line."""

from datetime import UTC, datetime, timedelta

import pytest

from upwell.cli.output import days_since
from upwell.ground.errors import UsageError


@pytest.mark.parametrize(
    ("since", "days"), [("1d", 1), ("7d", 7), ("36h", 2), ("5m", 1), ("2w", 14), ("90d", 90)]
)
def test_a_duration_covers_as_many_days_as_it_says(since: str, days: int) -> None:
    assert days_since(since) == days


def test_a_date_counts_from_that_day_on() -> None:
    now = datetime.now(UTC)
    assert days_since(now.date().isoformat()) == 1
    late_yesterday = (now - timedelta(days=1)).replace(hour=23, minute=59)
    assert days_since(late_yesterday.isoformat()) == 2


@pytest.mark.parametrize(
    ("since", "complaint"), [("91d", "at most 90 days"), ("2199-01-01", "in the future")]
)
def test_days_that_were_not_counted_are_refused(since: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        days_since(since)
