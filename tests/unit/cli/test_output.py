"""The progress bar, on a terminal only; durations and times of the command line."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.doors.terminal import typed

from upwell.cli.output import days_since
from upwell.ground.errors import UsageError

SCRIPT = """
import sys, time
from upwell.cli.output import progress
with progress("searching the harbour") as show:
    show(1, 2)
    time.sleep(float(sys.argv[1]))
print("done")
"""


@pytest.mark.parametrize(("seconds", "is_shown"), [("2.5", True), ("0", False)])
def test_only_long_work_has_a_bar(tmp_path: Path, seconds: str, is_shown: bool) -> None:
    command = ["env", "TERM=xterm", sys.executable, "-c", SCRIPT, seconds]
    environment = {"PATH": os.environ["PATH"], "FORCE_COLOR": "1"}
    shown = typed(command, (), environment, tmp_path)
    assert ("searching the harbour" in shown) == is_shown
    assert "done" in shown


def test_a_pipe_gets_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, "1.5"], capture_output=True, check=True)
    assert (done.stdout.decode().split(), done.stderr) == (["done"], b"")


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
