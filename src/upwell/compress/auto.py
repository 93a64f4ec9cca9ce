"""`auto`: the strategy that suits the content, by the table of seed 002.

    within budget → none · large JSON array, or dict with one → schema_pruning · nested JSON dict →
    extract_fields · API docs → skeleton · large structured Markdown, code → hybrid · else truncate

It never picks `selective`, `progressive` or `llm_summary`: they change how the agent must work,
or wait for something outside.
"""

from dataclasses import replace

from upwell.compress.base import NO_TOOLS, Tools
from upwell.compress.fields import ExtractFields
from upwell.compress.fitted import Room, outcome, whole
from upwell.compress.hybrid import Hybrid
from upwell.compress.json.fit import Emphasis
from upwell.compress.json.tree import ARRAY, OBJECT, Node
from upwell.compress.schema import SchemaPruning
from upwell.compress.shape import JSON_KINDS, fit_json, fit_text, read_json
from upwell.compress.skeleton import Skeleton
from upwell.compress.truncate import Truncate
from upwell.ground.text.kind import detect_plain
from upwell.ground.types import Budget, Compressed, Kind, Passage

LARGE_ARRAY = 20
"""Items from which an array counts as large (as in the peer of seed 002)."""
LARGE_MARKDOWN = 5_000
"""Characters from which Markdown is worth an outline (likewise)."""
_MANY_HEADINGS, _MANY_FENCES = 5, 6
_NESTED = 3

_EMPHASIS: dict[str, Emphasis] = {
    "schema_pruning": "schema", "extract_fields": "fields", "skeleton": "values",
    "truncate": "values",
}  # fmt: skip


def choose(passage: Passage, root: Node | None) -> str:
    """The name of the strategy for a passage over budget; `root` its tree where it is JSON."""
    if root is not None:
        return _choose_json(passage.kind, root)
    if passage.kind == Kind.API_DOCS:
        return Skeleton.name
    if passage.kind == Kind.CODE:
        return Hybrid.name
    if passage.kind == Kind.MARKDOWN and len(passage.text) >= LARGE_MARKDOWN:
        headings = passage.text.count("\n#") + passage.text.startswith("#")
        if headings >= _MANY_HEADINGS or passage.text.count("```") >= _MANY_FENCES:
            return Hybrid.name
    return Truncate.name


def _choose_json(kind: Kind, root: Node) -> str:
    if kind == Kind.OPENAPI:
        return Skeleton.name
    if root.kind == ARRAY:
        return SchemaPruning.name if len(root.items) >= LARGE_ARRAY else Truncate.name
    arrays = [len(item.items) for item in root.items if item.kind == ARRAY]
    if sum(arrays) >= LARGE_ARRAY:
        return SchemaPruning.name
    nested = sum(1 for item in root.items if item.kind in (OBJECT, ARRAY) and item.items)
    return ExtractFields.name if nested >= _NESTED else Truncate.name


class Auto:
    """Looks at what the passage is and hands it on."""

    name = "auto"

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
            chosen = choose(passage, root)
            return outcome(
                passage, fit_json(passage, root, room, _EMPHASIS[chosen], self._tools), chosen
            )
        if passage.kind in JSON_KINDS:
            passage = replace(passage, kind=detect_plain(passage.text, passage.name))
        chosen = choose(passage, None)
        if chosen == Truncate.name:
            return outcome(passage, fit_text(passage, room, self._tools), chosen)
        return (Skeleton if chosen == Skeleton.name else Hybrid)(self._tools).compress(
            passage, budget
        )
