"""The two ways to fit a text: a JSON document by its values, anything else by its units."""

from upwell.compress.assemble import assemble
from upwell.compress.base import NO_TOOLS, Tools
from upwell.compress.fitted import Fitted, Room, outcome, whole
from upwell.compress.json.fit import Emphasis, fit
from upwell.compress.json.large import LARGE_CHARS, thin
from upwell.compress.json.lines import parse_lines
from upwell.compress.json.tree import Node, parse
from upwell.compress.json.write import Style
from upwell.compress.meaning import meaning_of
from upwell.compress.relevance import ask
from upwell.compress.units import split
from upwell.compress.units.base import Units
from upwell.ground.errors import CompressionError
from upwell.ground.types import Budget, Compressed, Kind, Passage

JSON_KINDS = frozenset(
    {Kind.JSON_ARRAY, Kind.JSON_OBJECT, Kind.JSON_SCALAR, Kind.JSON_LINES, Kind.OPENAPI}
)


def read_json(passage: Passage) -> Node | None:
    """The tree of a passage that looks like JSON; None where it is none after all."""
    if passage.kind == Kind.JSON_LINES:
        return parse_lines(passage.text)
    if passage.kind not in JSON_KINDS:
        return None
    if len(passage.text) > LARGE_CHARS:
        thinned = thin(passage.text, ask(passage.query))
        if thinned is not None:
            return thinned
    return parse(passage.text)


def fit_json(
    passage: Passage, root: Node, room: Room, emphasis: Emphasis, tools: Tools = NO_TOOLS
) -> Fitted:
    """A JSON passage within `room`, valid JSON again. `root` is used up by this."""
    lines = passage.kind == Kind.JSON_LINES
    note = f"; all of it: key={passage.key}" if passage.key else ""
    colon = ": " if '": ' in passage.text[:4096] else ":"
    style = Style(colon=colon, lines=lines, note=note)
    meaning = meaning_of(passage.query, tools.embedder)
    return fit(root, passage.text, ask(passage.query), room, emphasis, style, meaning)


def compress_json(
    passage: Passage, budget: Budget, emphasis: Emphasis, tools: Tools, strategy: str
) -> Compressed:
    """What a strategy for JSON alone does with a passage.

    Raises:
        CompressionError: it is no JSON document.
    """
    room = Room.of(budget)
    if room.holds(passage.text):
        return whole(passage)
    root = read_json(passage)
    if root is None:
        raise CompressionError("not a JSON document", strategy=strategy)
    return outcome(passage, fit_json(passage, root, room, emphasis, tools), strategy)


def fit_text(
    passage: Passage, room: Room, tools: Tools = NO_TOOLS, units: Units | None = None
) -> Fitted:
    """A passage of any other kind within `room`."""
    made = split(passage.text, passage.kind, passage.name) if units is None else units
    meaning = meaning_of(passage.query, tools.embedder)
    return assemble(passage.text, made, ask(passage.query), room, passage.key, meaning)
