"""`extract_fields`: a JSON object keeps its top-level shape, with representative values."""

from upwell.compress.base import NO_TOOLS, Tools
from upwell.compress.shape import compress_json
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
        return compress_json(passage, budget, "fields", self._tools, self.name)
