"""Where it is put: beside the blocks of a response, never inside one (seed 000's three modes)."""

from collections.abc import Sequence

from upwell.surface.options import InjectionMode

SECTION_HEADING = "## Relevant memories\n\n"


def place[Block](blocks: Sequence[Block], memories: Block, mode: InjectionMode) -> list[Block]:
    """`blocks` with the block of memories before or after them; their own order stays."""
    if mode is InjectionMode.PREPEND:
        return [memories, *blocks]
    return [*blocks, memories]


def worded(text: str, mode: InjectionMode) -> str:
    """The text of the block: in `section` mode it has a heading of its own."""
    return SECTION_HEADING + text if mode is InjectionMode.SECTION else text
