"""Shortens a tool list that would take up too much of the agent's context window. Each
upstream tool's description is cut to one line, and its schema is usually replaced with a permissive
one. The `describe_tools` tool returns the full definitions.

Names, annotations and `_meta` stay, so that an agent's rules about a tool keep working. If the
arguments of a call cannot fit the full schema, the call is not sent, and the reply contains the
schema.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from upwell.gateway.calls.results import content_of, text_block, with_content
from upwell.ground.text.tokens import count, exceeds
from upwell.ground.text.words import informative, terms
from upwell.ground.types.rpc import Reply
from upwell.wire.mirrors import DECLARATION
from upwell.wire.peer import INVALID_PARAMS
from upwell.wire.rawjson import NotJson, RawArray, RawObject, depth, dumps, kind_of, loads

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

LINE_CHARS = 120
ANSWER_TOKENS = 4000
MAX_MATCHES = 10
TOOLS_CACHED = 10_000
"""The maximum number of entries in each cache of tools."""
DESCRIBE = "describe_tools"
_PLAIN_TYPES = frozenset({"string", "integer", "number", "boolean", "object"})
_SENTENCE_END = re.compile(r"[.!?](?=\s)")


class Definitions:
    """The full definitions of all tools, keyed by public name. A list of more than `max_tokens` is
    shortened. 0 disables this.
    """

    def __init__(self, max_tokens: int = 0) -> None:
        self.max_tokens = max_tokens
        self._full: Mapping[str, bytes] = {}
        self._shortened_names: frozenset[str] = frozenset()

    def listing(self, upstream: Mapping[str, RawObject], own: Mapping[str, bytes]) -> bytes:
        """Return the raw list of the upstreams' tools, followed by our own tools, which are never
        shortened. `describe_tools` is listed only if other tools are shortened.
        """
        full = {name: tool.encode() for name, tool in upstream.items()}
        self._full = {**full, **own}
        rest = tuple(raw for name, raw in own.items() if not name.endswith(DESCRIBE))
        listing = RawArray((*full.values(), *rest)).encode()
        if not self.max_tokens or not exceeds(listing.decode("utf-8", "replace"), self.max_tokens):
            self._shortened_names = frozenset()
            return listing
        self._shortened_names = frozenset(upstream)
        brief = (shortened(tool).encode() for tool in upstream.values())
        return RawArray((*brief, *own.values())).encode()

    def hidden_schema(self, name: str) -> bytes:
        """Return a tool's full input schema if its list entry is shortened, or b"" otherwise."""
        full = self._full.get(name)
        if full is None or name not in self._shortened_names:
            return b""
        return RawObject.parse(full).get("inputSchema") or b"{}"

    def named(self, names: Sequence[str]) -> tuple[Mapping[str, str], list[str]]:
        """Return the definitions of these tools as JSON, and the unknown names."""
        known = {name: _text(self._full[name]) for name in names if name in self._full}
        return known, [name for name in names if name not in self._full]

    def names(self) -> list[str]:
        return list(self._full)

    def search(self, query: str) -> Mapping[str, str]:
        """Return the `MAX_MATCHES` tools that best match a query, best first: at least one full
        definition, more up to `ANSWER_TOKENS`, then only names and short descriptions. Slow for
        long lists, but thread-safe."""
        matches: dict[str, str] = {}
        remaining_tokens, full = ANSWER_TOKENS, self._full
        for name in _ranked(full, query):
            text = _text(full[name])
            remaining_tokens -= count(text)
            if remaining_tokens < 0 and matches:
                tool = shortened(RawObject.parse(full[name]))
                text = _text(dumps({"name": name, "description": tool.value("description", "")}))
            matches[name] = text
        return matches


def _ranked(full: Mapping[str, bytes], query: str) -> list[str]:
    """Rank the tools by the words that they share with the query, weighted by rarity (inverse
    document frequency)."""
    weights = {name: _words(name, raw) for name, raw in full.items()}
    document_counts = Counter(word for words in weights.values() for word in words)
    scores: dict[str, float] = {}
    for word in informative(terms(query)):
        for name, words in weights.items():
            if word in words:
                rarity = math.log(1 + len(weights) / document_counts[word])
                scores[name] = scores.get(name, 0.0) + rarity * words[word]
    return sorted(scores, key=lambda name: (-scores[name], name))[:MAX_MATCHES]


@lru_cache(maxsize=TOOLS_CACHED)
def shortened(tool: RawObject) -> RawObject:
    """Reduce a tool to one line of description and a permissive schema. A schema that maps
    arguments to HTTP headers is kept, because clients read the mapping from it.
    """
    brief = tool.without("outputSchema")
    if "description" in tool:
        brief = brief.replaced("description", dumps(one_line(tool.value("description"))))
    if DECLARATION.encode() in (tool.get("inputSchema") or b""):
        return brief
    return brief.replaced("inputSchema", dumps(loosest(tool.value("inputSchema"))))


def one_line(text: object) -> str:
    """Return the first line of a description. A long line is truncated, at the end of a sentence if
    possible."""
    lines = (line.strip().lstrip("#").strip() for line in str(text or "").splitlines())
    line = " ".join(next((line for line in lines if line), "").split())
    if len(line) <= LINE_CHARS:
        return line
    ends = [end.end() for end in _SENTENCE_END.finditer(line, 0, LINE_CHARS + 1)]
    if ends and ends[-1] >= LINE_CHARS // 4:
        return line[: ends[-1]]
    return line[: LINE_CHARS - 1].rsplit(" ", 1)[0] + "…"


def loosest(schema: object) -> dict[str, object]:
    """Return a schema that accepts at least what `schema` accepts. It keeps the names and the plain
    types of the top-level properties, which are enough for most calls.
    """
    declaration = schema if isinstance(schema, dict) else {}
    declared = declaration.get("properties")
    own = declared if isinstance(declared, dict) else {}
    properties = {name: _loose(part) for name, part in own.items()}
    names = declaration.get("required")
    required = [name for name in names if name in properties] if isinstance(names, list) else []
    loose: dict[str, object] = {"type": "object", "properties": properties}
    return {**loose, "required": required} if required else loose


def _loose(schema: object) -> dict[str, object]:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "array":
        return {"type": "array", "items": {}}
    return {"type": kind} if isinstance(kind, str) and kind in _PLAIN_TYPES else {}


@lru_cache(maxsize=TOOLS_CACHED)
def _words(name: str, raw: bytes) -> Mapping[str, float]:
    """Return the weights of a tool's words: 3 for a word in its name, 1 for any other word."""
    tool = RawObject.parse(raw)
    schema = tool.get("inputSchema") or b"{}"
    description = " ".join(str(tool.value(member, "")) for member in ("title", "description"))
    if kind_of(schema) == "object":
        description += " " + _text(RawObject.parse(schema).get("properties") or b"")
    return {**dict.fromkeys(terms(description), 1.0), **dict.fromkeys(terms(name), 3.0)}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


# -- checking arguments against the full schema


MAX_STEPS = 10_000
MAX_DEPTH = 60
MAX_SHOWN_OPTIONS = 12
_CONTAINERS: Mapping[str, type] = {"object": dict, "array": list}
_LIMITS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
)
_SCHEMA = frozenset({"additionalProperties", "items"})
_SCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED_SCHEMAS = frozenset({"$defs", "definitions", "properties"})
_KEYWORDS = (
    *("$defs", "definitions", "type", "enum", "const", "$ref", "allOf", "anyOf", "oneOf"),
    *("required", "properties", "additionalProperties", "prefixItems", "items", *_LIMITS),
)
"""The keywords that are checked, in the order in which faults are reported. `pattern` is left out
because a hostile expression can run forever, and `format` because servers interpret it differently.
"""
_REFERENCE = re.compile(
    r"#(?:/(?:\$defs|definitions|properties)/[^/]*+|/(?:items|additionalProperties)"
    r"|/(?:allOf|anyOf|oneOf|prefixItems)/[0-9]{1,6})*+"
)
"""Matches references to a schema within the document. No other reference is followed."""


class _TooComplex(Exception):
    """The check took more than `MAX_STEPS` steps."""


def argument_fault(schema: RawObject, arguments: object) -> str:
    """Return the reason why `arguments` cannot fit a tool's schema, or "" if they may fit. Types
    are checked leniently, because some servers read `"5"` as 5 and `"[1]"` as a list. A string
    therefore fits all types, and a number, boolean or null fits all types except `object` and
    `array`. If a schema is nested too deeply, refers to itself endlessly, or takes more than
    `MAX_STEPS` steps to check, all arguments are accepted.

    Raises:
        NotJson: the schema is not JSON.
    """
    raw = schema.encode()
    # An embedded `$id` changes the base of the references below it. Such a schema is not checked.
    embedded_ids = raw.count(b'"$id"') - ("$id" in schema)
    if depth(raw) > MAX_DEPTH or embedded_ids > 0:
        return ""
    from jsonschema.exceptions import ValidationError
    from referencing.exceptions import Unresolvable

    try:
        error = next(_validator(_reduced(loads(raw))).iter_errors(arguments), None)
    except (_TooComplex, RecursionError, Unresolvable):
        return ""
    return _described(error) if isinstance(error, ValidationError) else ""


def _reduced(schema: object) -> Any:
    """Remove the keywords that are not checked, and those with malformed values."""
    if not isinstance(schema, dict):
        return schema is not False
    reduced: dict[str, Any] = {}
    for keyword in _KEYWORDS:
        if keyword in schema and _is_checked(keyword, schema):
            value = schema[keyword]
            if keyword in _SCHEMA:
                value = _reduced(value)
            elif keyword in _SCHEMA_LISTS:
                value = [_reduced(part) for part in value]
            elif keyword in _NAMED_SCHEMAS:
                value = {name: _reduced(part) for name, part in value.items()}
            reduced[keyword] = value
    return reduced


def _is_checked(keyword: str, schema: Mapping[str, Any]) -> bool:
    value = schema[keyword]
    if keyword == "additionalProperties":
        return "patternProperties" not in schema
    if keyword == "$ref":
        return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None
    if keyword == "type":
        kinds = value if isinstance(value, list) else [value]
        return bool(kinds) and all(isinstance(kind, str) for kind in kinds)
    if keyword == "required":
        return isinstance(value, list) and all(isinstance(name, str) for name in value)
    if keyword in _LIMITS:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if keyword in _SCHEMA_LISTS or keyword == "enum":
        return isinstance(value, list) and bool(value)
    return isinstance(value, dict) if keyword in _NAMED_SCHEMAS else True


def _validator(schema: Any) -> "Validator":
    """Return a JSON Schema validator with lenient types and a step limit. It cannot fetch other
    documents."""
    # Imported here, because the import takes 150 ms and only calls to shortened tools need it.
    from jsonschema import Draft202012Validator
    from jsonschema.validators import create
    from referencing import Registry

    steps = iter(range(MAX_STEPS))

    def counted(check: Callable[..., Any]) -> Callable[..., Iterator["ValidationError"]]:
        def run(*args: Any) -> Iterator["ValidationError"]:
            if next(steps, None) is None:
                raise _TooComplex
            yield from check(*args) or ()

        return run

    checks = {word: Draft202012Validator.VALIDATORS.get(word) for word in _KEYWORDS}
    checks["type"] = _lenient_type
    # With lenient types, several branches may fit, which `oneOf` would reject.
    checks["oneOf"] = checks["anyOf"]
    known = {word: counted(check) for word, check in checks.items() if check}
    no_documents: Registry[Any] = Registry()
    return create(meta_schema={}, validators=known)(schema, registry=no_documents)


def _lenient_type(
    _: "Validator", types: object, value: object, __: object
) -> Iterator["ValidationError"]:
    from jsonschema.exceptions import ValidationError

    kinds: list[str] = types if isinstance(types, list) else [str(types)]
    if isinstance(value, str):
        return
    containers = [kind for kind in kinds if kind in _CONTAINERS]
    if isinstance(value, dict | list):
        fits = any(isinstance(value, _CONTAINERS[kind]) for kind in containers)
    else:
        fits = len(containers) < len(kinds)
    if not fits:
        yield ValidationError(f"must be {' or '.join(kinds)}")


def _described(error: "ValidationError") -> str:
    """Describe a fault with its JSON path, such as `edits[0].new is missing`."""
    if error.context:
        return _described(error.context[0])
    path = _path(error.absolute_path)
    value, limit = error.instance, error.validator_value
    if error.validator == "type":
        return f"{path or 'arguments'} {error.message}"
    if error.validator == "required":
        name = next(name for name in limit if name not in value)
        return f"{path + '.' if path else ''}{name} is missing"
    if error.validator == "enum":
        return f"{path or 'arguments'} must be one of {_options(limit)}"
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
        name = next(name for name in value if name not in known)
        return f"{path or 'arguments'} may not have {name!r}, only {', '.join(known) or 'nothing'}"
    if error.validator in _LIMITS:
        return f"{path or 'arguments'} must satisfy {error.validator} {limit}"
    return f"{path or 'arguments'} is not allowed"


def _path(steps: Sequence[str | int]) -> str:
    parts = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return "".join(parts).removeprefix(".")


def _options(options: list[Any]) -> str:
    shown = ", ".join(map(repr, options[:MAX_SHOWN_OPTIONS]))
    rest = len(options) - MAX_SHOWN_OPTIONS
    return f"{shown} and {rest} more" if rest > 0 else shown


_ARGUMENT_ERROR = re.compile(r"-32602|validation error", re.IGNORECASE)
"""Matches the errors that the official Python and TypeScript SDKs return for invalid arguments."""


def refusal(name: str, schema: bytes, params: RawObject) -> Reply | None:
    """Return a result for the model if the arguments of a call cannot fit the schema, or None if
    the call may be sent. Slow for large arguments, but thread-safe.
    """
    try:
        fault = argument_fault(RawObject.parse(schema), params.value("arguments") or {})
    except NotJson:
        return None
    if not fault:
        return None
    texts = (f"[upwell] {name} was not called: {fault}.", _schema_text(name, schema))
    blocks = RawArray(tuple(map(text_block, texts))).encode()
    return Reply(result=b'{"content":%b,"isError":true}' % blocks)


def with_schema(name: str, schema: bytes, reply: Reply) -> Reply:
    """If a reply says that the arguments are invalid, add the schema to it."""
    if reply.error:
        error = RawObject.parse(reply.error)
        if error.get("code") != b"%d" % INVALID_PARAMS:
            return reply
        message = dumps(f"{error.value('message', '')}\n{_schema_text(name, schema)}")
        return Reply(error=error.replaced("message", message).encode())
    if b'"isError"' not in reply.result:
        return reply
    result = RawObject.parse(reply.result)
    blocks = content_of(result)
    if not blocks or result.get("isError") != b"true":
        return reply
    if not _ARGUMENT_ERROR.search(blocks[0][:4096].decode("utf-8", "replace")):
        return reply
    explanation = text_block(_schema_text(name, schema))
    return Reply(result=with_content(result, [*blocks, explanation]).encode())


def _schema_text(name: str, schema: bytes) -> str:
    return f"[upwell] The input schema of {name}, which the list does not show: {_text(schema)}"
