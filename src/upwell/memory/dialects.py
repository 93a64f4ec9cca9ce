"""What memory servers on MCP are asked, and how their answers are read.

Each has a tool that searches, arguments of its own, and an answer: structured, JSON in a text, or
a text for people. Arguments that a server's tool does not declare are not sent.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from upwell.ground.types import Query
from upwell.memory.asking import one_line, telling_words
from upwell.memory.options import LtmOptions, LtmProfile

QUERY = "{query}"
MOST_HITS = 20
MOST_OF_UPWELL = 10
"""Of its long previews, as many as its own budget leaves whole."""
MOST_SINGLE, MOST_WORDS = 3, 6
MOST_TAGS, TAG_CHARS = 20, 100
_TEXTS = ("content", "text", "matched_chunk", "memory", "snippet", "document", "value")
_SOURCES = ("source", "file_path", "permalink", "path", "url", "title", "name")
_SCORES = ("score", "similarity_score", "similarity", "relevance")
_COMPACT = re.compile(
    r"^\[\d{1,6}\] (?P<score>-?\d{1,9}\.\d{1,30}) \|(?: \[(?P<tag>[^\]\n]*+)\])?"
    r" (?P<source>[^\n]*+)\n",
    re.M,
)
_NUMBER = re.compile(r"^\d{1,6}\. ", re.M)
_NUMBERED_END = re.compile(r"^   Hash: \S*+\n   Created: [^\n]*+$", re.M)
_CITED = re.compile(
    r"^\[(?P<source>[^\]\n]*+)\] \((?P<score>\d\.\d{1,30}), id [^\s),]++[^)\n]*+\)\n", re.M
)
"""What is matched here comes from a stranger: each is looked for where a line begins and is never
tried twice over the same characters, so the time is that of reading the answer once."""


class Unreadable(Exception):
    """An answer that is none of the server's shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A hit as another server gave it. `score` is on a scale of its own; None where it has none."""

    text: str
    source: str = ""
    score: float | None = None
    tags: tuple[str, ...] = ()


Read = Callable[[Any], list[Found]]
"""Hits of the body of an answer: a decoded JSON value, or a text. Raises Unreadable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One kind of server. `tools` are the names its search goes by; every one of `asked` that a
    query gives is a call; `filtered`: only arguments that the tool declares are sent."""

    name: str
    tools: tuple[str, ...]
    arguments: Mapping[str, Any]
    read: Read
    asked: Callable[[Query], list[str]]
    filtered: bool = True

    def filled(self, text: str, declared: frozenset[str]) -> dict[str, Any]:
        """The arguments that ask for `text`."""
        return {
            name: _filled(value, text)
            for name, value in self.arguments.items()
            if not self.filtered or not declared or name in declared
        }


def whole(query: Query) -> list[str]:
    """For servers that rank by meaning, or by any of the words."""
    line = one_line(query)
    return [line] if line else []


def any_word(query: Query) -> list[str]:
    """For full-text search that otherwise wants every word to be there."""
    words = telling_words(query)[:MOST_WORDS]
    return [" OR ".join(words)] if words else []


def word_by_word(query: Query) -> list[str]:
    """For servers that look for the query as it is inside of what they hold."""
    return sorted(telling_words(query), key=len, reverse=True)[:MOST_SINGLE]


def body_of(result: Mapping[str, Any]) -> Any:
    """What an MCP tool result says: its structured content, else its texts, as JSON where they are.

    Raises:
        Unreadable: it is no tool result, or says that the call failed.
    """
    blocks = result.get("content")
    texts = [
        block["text"]
        for block in (blocks if isinstance(blocks, list) else [])
        if isinstance(block, dict) and isinstance(block.get("text"), str)
    ]
    if result.get("isError"):
        raise Unreadable(f"the call failed: {' '.join(texts)[:200] or 'no reason'}")
    body = result.get("structuredContent")
    if isinstance(body, dict) and set(body) == {"result"}:
        body = body["result"]
    if body is None:
        body = "\n".join(texts)
    if not isinstance(body, str) or body.lstrip()[:1] not in ("{", "["):
        return body
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body


def memtomem(body: Any) -> list[Found]:
    if not isinstance(body, str):
        return listed(body, "results")
    if "No results" in body[:40]:
        return []
    return [
        Found(
            text=text.removesuffix("..."),
            source=head["source"],
            score=float(head["score"]),
            tags=(head["tag"][:TAG_CHARS],) if head["tag"] else (),
        )
        for head, text in _blocks(_COMPACT, body)
    ]


def memory_service(body: Any) -> list[Found]:
    if not isinstance(body, str):
        return listed(body, "memories")
    if body.startswith(("No memories", "Found 0 ")):
        return []
    return [Found(text=text) for text in _numbered(body)] or _strange(body)


def basic_memory(body: Any) -> list[Found]:
    if isinstance(body, str) and body.startswith(("# Search Complete", "No results")):
        return []
    return listed(body, "results")


def official(body: Any) -> list[Found]:
    """One hit for each entity: its name, its type, and what was observed of it."""
    found = []
    for item in _at(body, "entities"):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            continue
        seen = [one for one in _list(item.get("observations")) if isinstance(one, str)]
        text = "\n".join([f"{item['name']} ({item.get('entityType', 'entity')})", *seen])
        found.append(Found(text=text, source=item["name"]))
    return found


def upwell(body: Any) -> list[Found]:
    if not isinstance(body, str):
        _strange(body)
    if body.startswith("Nothing is remembered"):
        return []
    return [
        Found(text=text.removesuffix("\n---"), source=head["source"], score=float(head["score"]))
        for head, text in _blocks(_CITED, body)
    ]


def listed(body: Any, path: str) -> list[Found]:
    """Hits of a list of texts, or of objects with a text, at a dotted path."""
    found = []
    for item in _at(body, path):
        text = item if isinstance(item, str) else _first(item, _TEXTS)
        if isinstance(text, str) and text.strip():
            found.append(
                Found(
                    text=text,
                    source=str(_first(item, _SOURCES) or ""),
                    score=_number(_first(item, _SCORES)),
                    tags=_tags(item),
                )
            )
    return found


DIALECTS: Mapping[LtmProfile, Dialect] = {
    LtmProfile.MEMTOMEM: Dialect(
        name="memtomem",
        tools=("mem_search",),
        arguments={
            "query": QUERY,
            "top_k": MOST_HITS,
            "output_format": "structured",
            "record": False,
        },
        read=memtomem,
        asked=whole,
    ),
    LtmProfile.MEMORY_SERVICE: Dialect(
        name="mcp-memory-service",
        tools=("memory_search", "retrieve_memory"),
        arguments={"query": QUERY, "limit": MOST_HITS, "n_results": MOST_HITS},
        read=memory_service,
        asked=whole,
    ),
    LtmProfile.BASIC_MEMORY: Dialect(
        name="basic-memory",
        tools=("search_notes",),
        arguments={"query": QUERY, "page_size": MOST_HITS, "output_format": "json"},
        read=basic_memory,
        asked=any_word,
    ),
    LtmProfile.OFFICIAL: Dialect(
        name="server-memory",
        tools=("search_nodes",),
        arguments={"query": QUERY},
        read=official,
        asked=word_by_word,
    ),
    LtmProfile.UPWELL: Dialect(
        name="upwell",
        tools=("upwell__memory_search",),
        arguments={"query": QUERY, "max_results": MOST_OF_UPWELL},
        read=upwell,
        asked=whole,
    ),
}


def dialect_of(options: LtmOptions, tools: Sequence[str]) -> Dialect | None:
    """How to speak to a server that has these tools; None where nothing of it is known."""
    if options.profile is LtmProfile.GENERIC:
        known = [_generic(options)]
    elif options.profile is LtmProfile.AUTO:
        known = list(DIALECTS.values())
    else:
        known = [DIALECTS[options.profile]]
    return next((one for one in known if not set(one.tools).isdisjoint(tools)), None)


def _generic(options: LtmOptions) -> Dialect:
    return Dialect(
        name=options.tool,
        tools=(options.tool,),
        arguments=options.arguments,
        read=lambda body: listed(body, options.result),
        asked=whole,
        filtered=False,
    )


def _filled(value: Any, text: str) -> Any:
    """A template with `text` in the place of the query, however deep."""
    if isinstance(value, str):
        return value.replace(QUERY, text)
    if isinstance(value, Mapping):
        return {name: _filled(one, text) for name, one in value.items()}
    return [_filled(one, text) for one in value] if isinstance(value, list | tuple) else value


def _at(body: Any, path: str) -> list[Any]:
    """The list at a dotted path; members of lists are named by their number."""
    for name in filter(None, path.split(".")):
        if isinstance(body, dict):
            body = body.get(name)
        elif isinstance(body, list) and name.isdecimal() and int(name) < len(body):
            body = body[int(name)]
        else:
            _strange(body)
    return body if isinstance(body, list) else _strange(body)


def _blocks(head: re.Pattern[str], text: str) -> list[tuple[re.Match[str], str]]:
    """Each head with what stands below it."""
    heads = list(head.finditer(text)) or _strange(text)
    ends = [*(one.start() for one in heads[1:]), len(text)]
    return [
        (one, text[one.end() : end].strip())
        for one, end in zip(heads, ends, strict=True)
        if text[one.end() : end].strip()
    ]


def _numbered(text: str) -> Iterator[str]:
    """What stands between a number and the next hash and date below it."""
    start = 0
    for end in _NUMBERED_END.finditer(text):
        if head := _NUMBER.search(text, start, end.start()):
            yield text[head.end() : end.start() - 1]
        start = end.end()


def _number(score: Any) -> float | None:
    """A score as a number; None where it is none, or none that can be counted with."""
    try:
        number = float(score) if isinstance(score, int | float) else math.nan
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _first(item: Any, names: Sequence[str]) -> Any:
    if not isinstance(item, dict):
        return None
    return next((item[name] for name in names if item.get(name) not in (None, "")), None)


def _tags(item: Any) -> tuple[str, ...]:
    said = item.get("tags") if isinstance(item, dict) else None
    return tuple(tag[:TAG_CHARS] for tag in _list(said)[:MOST_TAGS] if isinstance(tag, str))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _strange(body: Any) -> NoReturn:
    said = body if isinstance(body, str) else type(body).__name__
    raise Unreadable(f"its answer has none in it: {said[:100]!r}")
