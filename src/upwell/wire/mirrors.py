"""What of a message HTTP headers say as well, so that whoever stands in between may route by it
without reading bodies: the specification of 2026-07-28, streamable HTTP (SEP-2243).

A tool may declare that an argument is such (`x-mcp-header` in its schema): who sends a call says
`Mcp-Param-NAME`, who takes it refuses a call whose headers and arguments differ.
"""

import base64
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from upwell.ground.trace import LOG
from upwell.wire.rawjson import NotJson, RawObject, kind_of, loads

DECLARATION = "x-mcp-header"
PREFIX = "mcp-param-"
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""What of the params the header `Mcp-Name` says, by method."""
KINDS = frozenset({"string", "integer", "boolean"})
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_DECIMAL = re.compile(r"(-?)0*([0-9]+)(?:\.0*)?")
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?")
_EXACT = 2**53
_SCHEMA = frozenset(
    "items contains unevaluatedItems additionalProperties propertyNames unevaluatedProperties "
    "not if then else contentSchema".split()
)
_SCHEMAS = frozenset("allOf anyOf oneOf prefixItems".split())
_NAMED_SCHEMAS = frozenset("patternProperties dependentSchemas $defs definitions".split())


class BadMirror(ValueError):
    """A declaration that the specification forbids: nobody may use such a tool over HTTP."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """An argument that a header says as well: where it stands, and the header's whole name."""

    path: tuple[str, ...]
    header: str
    kind: str


def mirrors_of(schema: object) -> tuple[Mirror, ...]:
    """What an `inputSchema` declares.

    Raises:
        BadMirror: not on a property that is reached by `properties` alone, no token of RFC 9110,
            no string, integer or boolean, or a name twice.
    """
    found: dict[str, Mirror] = {}
    for path, part in _positions(schema):
        if DECLARATION not in part:
            continue
        name, kind, where = part[DECLARATION], part.get("type"), ".".join(path or ())
        if not path:
            raise BadMirror(f"{DECLARATION} stands where no argument is")
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise BadMirror(f"{where}: what {DECLARATION} says is no header's name")
        if not isinstance(kind, str) or kind not in KINDS:
            raise BadMirror(f"{where}: {DECLARATION} is for strings, integers and booleans")
        header = PREFIX + name.lower()
        if header in found:
            raise BadMirror(f"{where}: {DECLARATION} {name!r} is another argument's")
        found[header] = Mirror(path, header, kind)
    return tuple(found.values())


def declared_by(tool: RawObject) -> tuple[Mirror, ...]:
    """What a listed tool declares.

    Raises:
        BadMirror: as `mirrors_of`.
    """
    schema = tool.get("inputSchema") or b""
    return mirrors_of(loads(schema)) if DECLARATION.encode() in schema else ()


class Mirrors:
    """What the tools of one server declare, as they were listed. `where` it is, for the log."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._tools: dict[str, tuple[Mirror, ...]] = {}

    def listed(self, tools: Sequence[RawObject]) -> tuple[RawObject, ...]:
        """The tools that may be used over HTTP; calls of them are told in headers from now on."""
        kept: list[RawObject] = []
        self._tools = {}
        for tool in tools:
            try:
                if mirrors := declared_by(tool):
                    self._tools[str(tool.value("name"))] = mirrors
            except BadMirror as error:
                LOG.warning("%s: a tool is left out: %s", self._where, error)
                continue
            kept.append(tool)
        return tuple(kept)

    def headers_of(self, message: RawObject) -> dict[str, str]:
        """What a request has to say in its headers, nothing for one of the handshake era."""
        params = RawObject.parse(message.get("params") or b"{}")
        raw = params.get("_meta") or b""
        meta = RawObject.parse(raw) if kind_of(raw) == "object" else RawObject()
        version = meta.value(_VERSION_KEY)
        if not isinstance(version, str):
            return {}
        method = str(message.value("method"))
        headers = {"mcp-protocol-version": version, "mcp-method": encoded(method)}
        name = params.value(NAMED[method]) if method in NAMED else None
        if isinstance(name, str):
            headers["mcp-name"] = encoded(name)
            if method == "tools/call" and name in self._tools:
                headers |= said(self._tools[name], params.get("arguments") or b"{}")
        return headers


def said(mirrors: tuple[Mirror, ...], arguments: bytes) -> dict[str, str]:
    """The headers of a call with these arguments, raw JSON; none for what is absent or null."""
    rendered = {mirror.header: _rendered(_at(arguments, mirror.path)) for mirror in mirrors}
    return {header: encoded(value) for header, value in rendered.items() if value is not None}


def differing(
    mirrors: tuple[Mirror, ...], arguments: bytes, headers: Mapping[str, str]
) -> str | None:
    """The first header that does not say what the arguments say; None where all do."""
    for mirror in mirrors:
        given, value = headers.get(mirror.header), _rendered(_at(arguments, mirror.path))
        if given is None and value is None:
            continue
        read = decoded(given)
        if read is None or value is None or not _same(mirror.kind, read, value):
            return mirror.header
    return None


def encoded(value: str) -> str:
    """A header value; in base64 where HTTP could not carry it."""
    if _PLAIN.fullmatch(value) and not value.startswith("=?base64?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def decoded(value: str | None) -> str | None:
    """What `encoded` was given; None for base64 that is none."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        raw = base64.b64decode(value[9:-2], validate=True)
        return raw.decode() if base64.b64encode(raw).decode() == value[9:-2] else None
    except ValueError:
        return None


def _positions(schema: object) -> Iterator[tuple[tuple[str, ...] | None, Mapping[str, Any]]]:
    """Every place of a JSON Schema that is a schema itself: the path of an argument, or None where
    it is not reached by `properties` alone. Data (`default`, `enum`) is none, `$ref` not followed.
    """
    stack: list[tuple[tuple[str, ...] | None, object]] = [((), schema)]
    while stack:
        path, part = stack.pop()
        if not isinstance(part, dict):
            continue
        yield path, part
        for word, inside in part.items():
            if word == "properties" and isinstance(inside, dict):
                for name, argument in inside.items():
                    stack.append((None if path is None else (*path, name), argument))
            elif word in _SCHEMA:
                stack.append((None, inside))
            elif word in _SCHEMAS and isinstance(inside, list):
                stack += [(None, one) for one in inside]
            elif word in _NAMED_SCHEMAS and isinstance(inside, dict):
                stack += [(None, one) for one in inside.values()]


def _at(arguments: bytes, path: tuple[str, ...]) -> bytes:
    """The raw value at a path, b"" where there is none."""
    raw = arguments
    for name in path:
        try:
            raw = (RawObject.parse(raw).get(name) or b"") if kind_of(raw) == "object" else b""
        except NotJson:
            return b""
    return raw


def _rendered(raw: bytes) -> str | None:
    """A value as a header says it, None for what no header can say. Numbers keep their lexeme,
    unless it has an exponent."""
    raw = raw.strip()
    try:
        if raw[:1] == b'"':
            text = str(loads(raw))
            text.encode()
            return text
        if raw in (b"true", b"false") or _NUMBER.fullmatch(raw):
            return raw.decode()
        number = float(raw) if raw[:1] not in (b"{", b"[") else math.inf
        return str(int(number)) if abs(number) < _EXACT and number.is_integer() else None
    except (NotJson, ValueError):
        return None


def _same(kind: str, header: str, value: str) -> bool:
    if header == value:
        return True
    if kind != "integer":
        return False
    one, other = _DECIMAL.fullmatch(header), _DECIMAL.fullmatch(value)
    return one is not None and other is not None and one.groups() == other.groups()
