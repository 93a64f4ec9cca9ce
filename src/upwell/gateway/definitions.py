"""Tool lists that would fill the agent's window: every tool under its own name, with one line and
the loosest schema that clients take; what each one is in full is told when it is asked for.

Names, annotations and `_meta` stay, so that hosts' rules about a tool hold. A call with arguments
that the whole schema refuses is answered with that schema (`gateway/guidance.py`).
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from upwell.ground.text.tokens import count, exceeds
from upwell.ground.text.words import informative, terms
from upwell.wire.mirrors import DECLARATION
from upwell.wire.rawjson import RawArray, RawObject, dumps, kind_of

LINE_CHARS = 120
ANSWER_TOKENS = 4000
MOST_FOUND = 10
TOOLS_KEPT = 10_000
"""What was made of so many tools is not made again."""
DESCRIBE = "describe_tools"
_PLAIN = frozenset({"string", "integer", "number", "boolean", "object"})
_END = re.compile(r"[.!?](?=\s)")


class Definitions:
    """Every tool in full, by its name in front. A list of more than `most_tokens` is served
    short; 0: never."""

    def __init__(self, most_tokens: int = 0) -> None:
        self.most_tokens = most_tokens
        self._full: Mapping[str, bytes] = {}
        self._theirs: frozenset[str] = frozenset()

    def listing(self, theirs: Mapping[str, RawObject], ours: Mapping[str, bytes]) -> bytes:
        """The raw list to serve of servers' tools and our own, in their order. Ours are never
        shortened; the one that describes tools is listed where something was."""
        full = {name: tool.encode() for name, tool in theirs.items()}
        self._full = {**full, **ours}
        rest = tuple(raw for name, raw in ours.items() if not name.endswith(DESCRIBE))
        whole = RawArray((*full.values(), *rest)).encode()
        most = self.most_tokens
        if not most or not exceeds(whole.decode("utf-8", "replace"), most):
            self._theirs = frozenset()
            return whole
        self._theirs = frozenset(theirs)
        brief = (shortened(tool).encode() for tool in theirs.values())
        return RawArray((*brief, *ours.values())).encode()

    def hidden(self, name: str) -> bytes:
        """The input schema of a tool that is listed without it, "" for every other."""
        full = self._full.get(name)
        if full is None or name not in self._theirs:
            return b""
        return RawObject.parse(full).get("inputSchema") or b"{}"

    def named(self, names: Sequence[str]) -> tuple[Mapping[str, str], list[str]]:
        """The definitions of these tools as JSON, and the names that no tool has."""
        known = {name: _text(self._full[name]) for name in names if name in self._full}
        return known, [name for name in names if name not in self._full]

    def names(self) -> list[str]:
        return list(self._full)

    def search(self, query: str) -> Mapping[str, str]:
        """The tools that a query speaks of, the closest first: in full as far as there is room,
        then their names and lines alone. Takes its time; safe to call from any thread."""
        found: dict[str, str] = {}
        left, full = ANSWER_TOKENS, self._full
        for name in _closest(full, query):
            text = _text(full[name])
            left -= count(text)
            if left < 0 and found:
                tool = shortened(RawObject.parse(full[name]))
                text = _text(dumps({"name": name, "description": tool.value("description", "")}))
            found[name] = text
        return found


def _closest(full: Mapping[str, bytes], query: str) -> list[str]:
    """By the words they share with the query, rare words and words of the name more."""
    words = {name: _words(name, raw) for name, raw in full.items()}
    having = Counter(word for found in words.values() for word in found)
    scores: dict[str, float] = {}
    for word in informative(terms(query)):
        for name, found in words.items():
            if word in found:
                rarity = math.log(1 + len(words) / having[word])
                scores[name] = scores.get(name, 0.0) + rarity * found[word]
    return sorted(scores, key=lambda name: (-scores[name], name))[:MOST_FOUND]


@lru_cache(maxsize=TOOLS_KEPT)
def shortened(tool: RawObject) -> RawObject:
    """The tool with one line of description, the loosest schema, and no promise of a structure.
    A schema that has arguments in headers stays: clients read there which."""
    brief = tool.without("outputSchema")
    if "description" in tool:
        brief = brief.replaced("description", dumps(one_line(tool.value("description"))))
    if DECLARATION.encode() in (tool.get("inputSchema") or b""):
        return brief
    return brief.replaced("inputSchema", dumps(loosest(tool.value("inputSchema"))))


def one_line(text: object) -> str:
    """The first line of a description, to the end of a sentence where it is long."""
    lines = (line.strip().lstrip("#").strip() for line in str(text or "").splitlines())
    line = " ".join(next((line for line in lines if line), "").split())
    if len(line) <= LINE_CHARS:
        return line
    ends = [end.end() for end in _END.finditer(line, 0, LINE_CHARS + 1)]
    if ends and ends[-1] >= LINE_CHARS // 4:
        return line[: ends[-1]]
    return line[: LINE_CHARS - 1].rsplit(" ", 1)[0] + "…"


def loosest(schema: object) -> dict[str, object]:
    """A schema that takes whatever `schema` takes, with the names and plain types of its own
    properties, since those are what most calls need."""
    whole = schema if isinstance(schema, dict) else {}
    declared = whole.get("properties")
    own = declared if isinstance(declared, dict) else {}
    kept = {name: _loose(one) for name, one in own.items()}
    required = whole.get("required")
    needed = [one for one in required if one in kept] if isinstance(required, list) else []
    loose: dict[str, object] = {"type": "object", "properties": kept}
    return {**loose, "required": needed} if needed else loose


def _loose(schema: object) -> dict[str, object]:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "array":
        return {"type": "array", "items": {}}
    return {"type": kind} if isinstance(kind, str) and kind in _PLAIN else {}


@lru_cache(maxsize=TOOLS_KEPT)
def _words(name: str, raw: bytes) -> Mapping[str, float]:
    """The words of a tool and their weights: its name, then what it says of itself."""
    tool = RawObject.parse(raw)
    schema = tool.get("inputSchema") or b"{}"
    said = " ".join(str(tool.value(member, "")) for member in ("title", "description"))
    if kind_of(schema) == "object":
        said += " " + _text(RawObject.parse(schema).get("properties") or b"")
    return {**dict.fromkeys(terms(said), 1.0), **dict.fromkeys(terms(name), 3.0)}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
