"""Times as people and programs read them."""

from datetime import UTC, datetime


def iso(at: float | None) -> str:
    """Seconds since the epoch as ISO-8601 UTC with Z, "" when not known."""
    if at is None:
        return ""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
