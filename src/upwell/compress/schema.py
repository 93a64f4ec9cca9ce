"""`schema_pruning`: JSON arrays sampled so that their schema stays visible."""

from upwell.compress.base import NO_TOOLS, Tools
from upwell.compress.fitted import Room, outcome, whole
from upwell.compress.shape import JSON_KINDS, fit_json, read_json
from upwell.ground.errors import CompressionError
from upwell.ground.types import Budget, Compressed, Passage


class SchemaPruning:
    """One value of every key path, as far as the budget admits; then the records and fields that
    matter most."""

    name = "schema_pruning"

    def __init__(self, tools: Tools = NO_TOOLS) -> None:
        self._tools = tools

    def fits(self, passage: Passage) -> bool:
        return passage.kind in JSON_KINDS

    def compress(self, passage: Passage, budget: Budget) -> Compressed:
        room = Room.of(budget)
        if room.holds(passage.text):
            return whole(passage)
        root = read_json(passage)
        if root is None:
            raise CompressionError("not a JSON document", strategy=self.name)
        return outcome(passage, fit_json(passage, root, room, "schema", self._tools), self.name)
