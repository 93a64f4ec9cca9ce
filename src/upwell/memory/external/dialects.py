"""The search tools of MCP memory servers: their names, arguments and result formats.

A result is structured content, JSON in a text block, or plain text for people. Arguments that the
server's tool does not declare are not sent, unless it declares none at all.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from msgspec import Struct

from upwell.ground.types.memory import Query
from upwell.memory.ranking.terms import EVERYDAY_WORDS, query_words

MAX_CHARS = 500


def one_line(query: Query) -> str:
    """Return the first text of a query as a single line, or its paths and symbols if it has no
    text."""
    texts = query.texts[:1] or (*query.paths, *query.symbols)
    return " ".join(" ".join(texts).split())[:MAX_CHARS]


def telling_words(query: Query) -> list[str]:
    """Return the words of a query in order. Everyday words are left out unless the query has no
    others. Words contain only letters and digits, so servers see no search operators."""
    texts = [*query.texts[:1], *query.paths, *query.symbols]
    words = dict.fromkeys(word for text in texts for word in query_words(text[:MAX_CHARS]))
    return [word for word in words if word not in EVERYDAY_WORDS] or list(words)


QUERY = "query"
SEARCHING = frozenset({"search", "find", "recall", "retrieve"})
CHANGING = frozenset(
    "add create delete edit execute forget insert merge put remove replace run save set start store"
    " update upsert write".split()
)
"""Words in the names of tools that search, and of tools that change something."""
_WORD = re.compile(r"[A-Z]?[a-z]{1,40}|[A-Z]{1,40}")
MAX_HITS = 20
MAX_UPWELL_HITS = 10
"""How many hits to request from another upwell. Its responses have room for this many long
previews."""
MAX_SINGLE_WORDS, MAX_WORDS = 3, 6
MAX_TAGS, TAG_CHARS = 20, 100
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
"""Tool results are untrusted. In every pattern, repetitions are possessive or bounded, and matches
begin only at the start of a line, so that matching takes linear time."""


class UnreadableResult(Exception):
    """The result is an error, or has none of the formats that this kind of server uses."""


class ServerHit(Struct, frozen=True, kw_only=True):
    """A hit from another server. `score` is on the server's own scale, or None if there is no
    score."""

    text: str
    source: str = ""
    score: float | None = None
    tags: tuple[str, ...] = ()


Read = Callable[[Any], list[ServerHit]]
"""Extracts the hits from a result's body, which is a decoded JSON value or a text. May raise
`UnreadableResult`."""


class Dialect(Struct, frozen=True, kw_only=True):
    """One kind of server. `tools` are the possible names of its search tool. `requests` turns a
    query into texts, and upwell makes one call for each text, with the further `arguments`."""

    name: str
    tools: tuple[str, ...]
    read: Read
    requests: Callable[[Query], list[str]]
    arguments: Mapping[str, Any] = {}

    def filled(self, text: str, declared: frozenset[str]) -> dict[str, Any]:
        """Return the arguments for a search for `text`, without those that the tool does not
        declare, unless it declares none at all."""
        arguments = {QUERY: text, **self.arguments}
        return {n: value for n, value in arguments.items() if not declared or n in declared}


def whole(query: Query) -> list[str]:
    line = one_line(query)
    return [line] if line else []


def any_word(query: Query) -> list[str]:
    """Request the words joined by OR, for full-text searches that would otherwise require every
    word."""
    words = telling_words(query)[:MAX_WORDS]
    return [" OR ".join(words)] if words else []


def word_by_word(query: Query) -> list[str]:
    """Make one request for each of the longest words, for servers that match the query
    literally."""
    return sorted(telling_words(query), key=len, reverse=True)[:MAX_SINGLE_WORDS]


def body_of(result: Mapping[str, Any]) -> Any:
    """Return the content of an MCP tool result: the structured content if there is any, otherwise
    the texts, decoded if they are JSON. Raises Unreadable if the result is an error."""
    blocks = result.get("content")
    texts = [
        block["text"]
        for block in (blocks if isinstance(blocks, list) else [])
        if isinstance(block, dict) and isinstance(block.get("text"), str)
    ]
    if result.get("isError"):
        raise UnreadableResult(f"the call failed: {' '.join(texts)[:200] or 'no reason'}")
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


def memtomem(body: Any) -> list[ServerHit]:
    if not isinstance(body, str):
        return listed(body, "results")
    if "No results" in body[:40]:
        return []
    return [
        ServerHit(
            text=text.removesuffix("..."),
            source=head["source"],
            score=float(head["score"]),
            tags=(head["tag"][:TAG_CHARS],) if head["tag"] else (),
        )
        for head, text in _blocks(_COMPACT, body)
    ]


def memory_service(body: Any) -> list[ServerHit]:
    if not isinstance(body, str):
        return listed(body, "memories")
    if body.startswith(("No memories", "Found 0 ")):
        return []
    return [ServerHit(text=text) for text in _numbered(body)] or _refuse(body)


def basic_memory(body: Any) -> list[ServerHit]:
    if isinstance(body, str) and body.startswith(("# Search Complete", "No results")):
        return []
    return listed(body, "results")


def official(body: Any) -> list[ServerHit]:
    """Return one hit for each entity, with the entity's name, type and observations."""
    hits = []
    for item in _at(body, "entities"):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            continue
        observations = [text for text in _list(item.get("observations")) if isinstance(text, str)]
        title = f"{item['name']} ({item.get('entityType', 'entity')})"
        hits.append(ServerHit(text="\n".join([title, *observations]), source=item["name"]))
    return hits


def upwell(body: Any) -> list[ServerHit]:
    if not isinstance(body, str):
        _refuse(body)
    if body.startswith("Nothing is remembered"):
        return []
    return [
        ServerHit(
            text=text.removesuffix("\n---"), source=head["source"], score=float(head["score"])
        )
        for head, text in _blocks(_CITED, body)
    ]


def listed(body: Any, name: str) -> list[ServerHit]:
    hits = []
    for item in _at(body, name):
        text = item if isinstance(item, str) else _first(item, _TEXTS)
        if isinstance(text, str) and text.strip():
            tags = _list(item.get("tags") if isinstance(item, dict) else None)
            hits.append(
                ServerHit(
                    text=text,
                    source=str(_first(item, _SOURCES) or ""),
                    score=_number(_first(item, _SCORES)),
                    tags=tuple(tag[:TAG_CHARS] for tag in tags[:MAX_TAGS] if isinstance(tag, str)),
                )
            )
    return hits


def any_list(body: Any) -> list[ServerHit]:
    """Return the hits of an unknown server: the first list with texts, at most two levels down."""
    levels = [body]
    for _ in range(3):
        for value in levels:
            if isinstance(value, list) and (not value or (hits := listed(value, ""))):
                return hits if value else []
        levels = [v for level in levels if isinstance(level, dict) for v in level.values()]
    return _refuse(body)


DIALECTS = (
    Dialect(
        name="memtomem",
        tools=("mem_search",),
        arguments={
            "top_k": MAX_HITS,
            "output_format": "structured",
            "record": False,
        },
        read=memtomem,
        requests=whole,
    ),
    Dialect(
        name="mcp-memory-service",
        tools=("memory_search", "retrieve_memory"),
        arguments={"limit": MAX_HITS, "n_results": MAX_HITS},
        read=memory_service,
        requests=whole,
    ),
    Dialect(
        name="basic-memory",
        tools=("search_notes",),
        arguments={"page_size": MAX_HITS, "output_format": "json"},
        read=basic_memory,
        requests=any_word,
    ),
    Dialect(
        name="server-memory",
        tools=("search_nodes",),
        read=official,
        requests=word_by_word,
    ),
    Dialect(
        name="upwell",
        tools=("upwell__memory_search",),
        arguments={"max_results": MAX_UPWELL_HITS},
        read=upwell,
        requests=whole,
    ),
)


def dialect_of(tools: Mapping[str, frozenset[str]]) -> Dialect | None:
    """Return the dialect that matches a server with these tools, each with its arguments. Of an
    unknown server, a tool that is named like a search and takes a `query` is used, preferably the
    one with the shortest name. None if there is no such tool."""
    for dialect in DIALECTS:
        if not tools.keys().isdisjoint(dialect.tools):
            return dialect
    for tool in sorted(tools, key=len):
        words = {word.lower() for word in _WORD.findall(tool)}
        if QUERY in tools[tool] and words & SEARCHING and not words & CHANGING:
            return Dialect(name=tool, tools=(tool,), read=any_list, requests=whole)
    return None


def _at(body: Any, name: str) -> list[Any]:
    if name:
        body = body.get(name) if isinstance(body, dict) else None
    return body if isinstance(body, list) else _refuse(body)


def _blocks(head: re.Pattern[str], text: str) -> list[tuple[re.Match[str], str]]:
    heads = list(head.finditer(text)) or _refuse(text)
    ends = [*(match.start() for match in heads[1:]), len(text)]
    return [
        (match, block)
        for match, end in zip(heads, ends, strict=True)
        if (block := text[match.end() : end].strip())
    ]


def _numbered(text: str) -> Iterator[str]:
    """The text of an item is between its number and the lines with its hash and date."""
    start = 0
    for end in _NUMBERED_END.finditer(text):
        if head := _NUMBER.search(text, start, end.start()):
            yield text[head.end() : end.start() - 1]
        start = end.end()


def _number(score: Any) -> float | None:
    try:
        number = float(score) if isinstance(score, int | float) else math.nan
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _first(item: Any, names: Sequence[str]) -> Any:
    if not isinstance(item, dict):
        return None
    return next((item[name] for name in names if item.get(name) not in (None, "")), None)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _refuse(body: Any) -> NoReturn:
    excerpt = body if isinstance(body, str) else type(body).__name__
    raise UnreadableResult(f"the answer has an unknown format: {excerpt[:100]!r}")
