"""How many of something, as a person says it."""


def counted(number: int, one: str, many: str = "") -> str:
    """`1 memory`, `2 memories`, `1,000 files`. `many`: the plural where an s is not all."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
