"""`schema_pruning`: JSON arrays sampled so that their schema stays visible."""

from upwell.compress.base import NO_TOOLS, Tools
from upwell.compress.shape import JSON_KINDS, compress_json
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
        return compress_json(passage, budget, "schema", self._tools, self.name)
