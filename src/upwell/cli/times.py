"""Durations and times as people write them."""

import math
import re
import time

from upwell.ground.errors import UsageError

_SPAN = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
MAX_DAYS = 90
"""Daily figures are kept for this long."""


def seconds_of(span: str) -> float:
    """`30d` as seconds.

    Raises:
        UsageError: not a positive number followed by s, m, h, d or w.
    """
    match = _SPAN.fullmatch(span.strip().lower())
    if match is None or not int(match[1]):
        raise UsageError(f"{span[:40]!r} is not a duration", hint="try 45m, 12h, 30d or 8w")
    return float(int(match[1]) * _UNITS[match[2]])


def epoch_of(since: str | None) -> float:
    """The time that `--since` gives as a duration before now or as a date, in seconds since the
    epoch; 0 for None.

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
            f"--since {since!r:.40} is not a time", hint="like 30d, 12h or 2026-01-31"
        ) from error


def days_since(since: str) -> int:
    """The number of days that `--since` covers, today included: `7d` is seven days.

    Raises:
        UsageError: `since` is not a time, is in the future, or is more than 90 days ago.
    """
    seconds = time.time() - epoch_of(since)
    # A moment has passed since the duration was subtracted: `7d` must not become eight days.
    days = max(1, math.ceil((seconds - 60) / _UNITS["d"]))
    if seconds < 0 or days > MAX_DAYS:
        raise UsageError(f"--since goes back at most {MAX_DAYS} days")
    return days
