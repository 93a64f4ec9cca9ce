"""`hybrid`: the structure of a document stays, its less important parts are abbreviated."""

from upwell.compress.base import NO_TOOLS, Tools
from upwell.compress.fitted import Room, outcome, whole
from upwell.compress.outlines import lift_structure
from upwell.compress.shape import JSON_KINDS, fit_text
from upwell.compress.units import split
from upwell.ground.errors import CompressionError
from upwell.ground.types import Budget, Compressed, Kind, Passage


class Hybrid:
    """Every heading of Markdown and every signature of code, as far as the budget admits; then
    the parts that matter most."""

    name = "hybrid"

    def __init__(self, tools: Tools = NO_TOOLS) -> None:
        self._tools = tools

    def fits(self, passage: Passage) -> bool:
        return passage.kind in (Kind.MARKDOWN, Kind.API_DOCS, Kind.CODE)

    def compress(self, passage: Passage, budget: Budget) -> Compressed:
        room = Room.of(budget)
        if room.holds(passage.text):
            return whole(passage)
        if passage.kind in JSON_KINDS:
            raise CompressionError("JSON has no headings to keep", strategy=self.name)
        units = split(passage.text, passage.kind, passage.name)
        lift_structure(units)
        return outcome(passage, fit_text(passage, room, self._tools, units), self.name)
