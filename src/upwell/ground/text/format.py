"""Format counts and times."""

from datetime import UTC, datetime

BAR_CHARS = 24


def counted(number: int, one: str, many: str = "") -> str:
    """Return the number with its noun, such as `1 memory`, `2 memories` or `1,000 files`.

    `many` is the plural; by default, the singular with an s.
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def iso(at: float | None) -> str | None:
    """Format epoch seconds as ISO 8601 in UTC with Z; None stays None."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def bar(number: int, largest: int) -> str:
    """Return a chart's bar for `number`, on a scale where `largest` takes `BAR_CHARS` characters.
    The bar for 0 is ""."""
    return "▇" * max(1, round(BAR_CHARS * number / largest)) if number > 0 else ""
