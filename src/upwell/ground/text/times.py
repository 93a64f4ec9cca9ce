"""Moments as programs read them."""

from datetime import UTC, datetime


def iso(at: float | None) -> str | None:
    """Seconds since the epoch as ISO-8601 UTC with Z; None when not known."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
