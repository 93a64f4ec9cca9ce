"""`extract_fields`: a JSON object keeps its top-level shape, with representative values."""

from upwell.compress.base import NO_TOOLS, Tools
from upwell.compress.fitted import Room, outcome, whole
from upwell.compress.shape import fit_json, read_json
from upwell.ground.errors import CompressionError
from upwell.ground.types import Budget, Compressed, Kind, Passage


class ExtractFields:
    """Every top-level key, each with its most telling value, as far as the budget admits; then
    the values that matter most."""

    name = "extract_fields"

    def __init__(self, tools: Tools = NO_TOOLS) -> None:
        self._tools = tools

    def fits(self, passage: Passage) -> bool:
        return passage.kind in (Kind.JSON_OBJECT, Kind.OPENAPI)

    def compress(self, passage: Passage, budget: Budget) -> Compressed:
        room = Room.of(budget)
        if room.holds(passage.text):
            return whole(passage)
        root = read_json(passage)
        if root is None:
            raise CompressionError("not a JSON document", strategy=self.name)
        return outcome(passage, fit_json(passage, root, room, "fields", self._tools), self.name)
