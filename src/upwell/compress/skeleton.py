"""`skeleton`: headings and the first line under each; for API documentation."""

from upwell.compress.base import NO_TOOLS, Tools
from upwell.compress.fitted import Room, outcome, whole
from upwell.compress.outlines import lift_structure
from upwell.compress.shape import JSON_KINDS, fit_json, fit_text, read_json
from upwell.compress.units import split
from upwell.ground.errors import CompressionError
from upwell.ground.types import Budget, Compressed, Kind, Passage


class Skeleton:
    """Every heading with its first content line, as far as the budget admits; of an OpenAPI
    document every path and operation."""

    name = "skeleton"

    def __init__(self, tools: Tools = NO_TOOLS) -> None:
        self._tools = tools

    def fits(self, passage: Passage) -> bool:
        return passage.kind in (Kind.API_DOCS, Kind.OPENAPI, Kind.MARKDOWN, Kind.CODE)

    def compress(self, passage: Passage, budget: Budget) -> Compressed:
        room = Room.of(budget)
        if room.holds(passage.text):
            return whole(passage)
        if passage.kind in JSON_KINDS:
            root = read_json(passage)
            if root is None:
                raise CompressionError("not a JSON document", strategy=self.name)
            return outcome(passage, fit_json(passage, root, room, "values", self._tools), self.name)
        units = split(passage.text, passage.kind, passage.name)
        lift_structure(units, first_lines=True)
        return outcome(passage, fit_text(passage, room, self._tools, units), self.name)
