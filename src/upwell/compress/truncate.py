"""`truncate`: cut to length, the default fallback. What is kept is what matters most, not merely
what comes first: the parts that answer the question, and those that say most without one."""

from upwell.compress.base import NO_TOOLS, Tools
from upwell.compress.fitted import Room, outcome, whole
from upwell.compress.shape import fit_json, fit_text, read_json
from upwell.ground.types import Budget, Compressed, Passage


class Truncate:
    """Fits anything."""

    name = "truncate"

    def __init__(self, tools: Tools = NO_TOOLS) -> None:
        self._tools = tools

    def fits(self, passage: Passage) -> bool:
        return True

    def compress(self, passage: Passage, budget: Budget) -> Compressed:
        room = Room.of(budget)
        if room.holds(passage.text):
            return whole(passage)
        root = read_json(passage)
        if root is not None:
            return outcome(passage, fit_json(passage, root, room, "values", self._tools), self.name)
        return outcome(passage, fit_text(passage, room, self._tools), self.name)
