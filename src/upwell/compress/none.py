"""`none`: pass the original through."""

from upwell.compress.base import NO_TOOLS, Tools
from upwell.compress.fitted import whole
from upwell.ground.types import Budget, Compressed, Passage


class PassThrough:
    """The text as it came, whatever the budget."""

    name = "none"

    def __init__(self, tools: Tools = NO_TOOLS) -> None:
        self._tools = tools

    def fits(self, passage: Passage) -> bool:
        return True

    def compress(self, passage: Passage, budget: Budget) -> Compressed:
        return whole(passage)
