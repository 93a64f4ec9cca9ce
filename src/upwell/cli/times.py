"""Durations and times as people write them."""

import math
import re
import time
from datetime import UTC, datetime

from upwell.ground.errors import UsageError

_SPAN = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
MAX_DAYS = 90
"""The number of days for which daily figures are kept."""


def seconds_of(span: str) -> float:
    """The number of seconds in a duration such as `30d`.

    Raises:
        UsageError: `span` is not a positive number followed by s, m, h, d or w.
    """
    match = _SPAN.fullmatch(span.strip().lower())
    if match is None or not int(match[1]):
        raise UsageError(f"{span[:40]!r} is not a duration", hint="try 45m, 12h, 30d or 8w")
    return float(int(match[1]) * _UNITS[match[2]])


def epoch_of(since: str | None) -> float:
    """The time of `--since`, in seconds since the epoch. `since` is a date, or a duration before
    now. Returns 0 for None.

    Raises:
        UsageError: `since` is neither a duration nor a date.
    """
    if since is None:
        return 0.0
    from upwell.replay.transcripts.base import moment

    if at := moment(since):
        return at
    try:
        return time.time() - seconds_of(since)
    except UsageError as error:
        raise UsageError(
            f"--since {since!r:.40} is not a time", hint="try 30d, 12h or 2026-01-31"
        ) from error


def days_since(since: str) -> int:
    """The number of calendar days (UTC) that `--since` covers, including today. `7d` covers seven
    days. If `--since` is a date, that day is the first.

    Raises:
        UsageError: `since` is not a time, is in the future, or covers more than 90 days.
    """
    began = datetime.fromtimestamp(epoch_of(since), UTC).date()
    days = (datetime.now(UTC).date() - began).days + 1
    if _SPAN.fullmatch(since.strip().lower()):
        days = math.ceil(seconds_of(since) / _UNITS["d"])
    if days < 1:
        raise UsageError(f"--since {since!r:.40} is in the future")
    if days > MAX_DAYS:
        raise UsageError(f"--since goes back at most {MAX_DAYS} days")
    return days
