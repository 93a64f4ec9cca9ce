"""HTTP headers that repeat parts of a message, so that proxies can route without reading bodies
(MCP specification of 2026-07-28, streamable HTTP, SEP-2243).

With `x-mcp-header` in its schema, a tool declares that a header repeats an argument. The client
then sends `Mcp-Param-NAME`, and the server rejects a call whose header and argument differ.
"""

import base64
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from upwell.ground.trace import LOG
from upwell.wire.rawjson import NotJson, RawObject, kind_of, loads

DECLARATION = "x-mcp-header"
PREFIX = "mcp-param-"
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""For each method, the parameter that the `Mcp-Name` header repeats."""
KINDS = frozenset({"string", "integer", "boolean"})
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_DECIMAL = re.compile(r"(-?)(?:0(?=[0-9]))*+([0-9]++)(?:\.0*+)?+")
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?")
_EXACT = 2**53
_SCHEMA = frozenset(
    "items contains unevaluatedItems additionalProperties propertyNames unevaluatedProperties "
    "not if then else contentSchema".split()
)
_SCHEMAS = frozenset("allOf anyOf oneOf prefixItems".split())
_NAMED_SCHEMAS = frozenset("patternProperties dependentSchemas $defs definitions".split())


class BadMirror(ValueError):
    """A tool's declaration is forbidden by the specification. The tool must not be called over
    HTTP."""


class Mirror(Struct, frozen=True):
    """An argument that a header repeats. `header` is the full name of the header, and `kind` is the
    argument's type."""

    path: tuple[str, ...]
    header: str
    kind: str


def mirrors_of(schema: object) -> tuple[Mirror, ...]:
    """Return the mirrors that an `inputSchema` declares.

    Raises:
        BadMirror: the specification forbids a declaration. The argument must be reachable through
            `properties` alone, and must be a string, an integer or a boolean. The header name must
            be an RFC 9110 token, and must occur only once.
    """
    mirrors: dict[str, Mirror] = {}
    for path, part in _positions(schema):
        if DECLARATION not in part:
            continue
        name, kind, dotted = part[DECLARATION], part.get("type"), ".".join(path or ())
        if not path:
            raise BadMirror(f"{DECLARATION} is declared outside of the arguments")
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise BadMirror(f"{dotted}: the value of {DECLARATION} is not a header name")
        if not isinstance(kind, str) or kind not in KINDS:
            raise BadMirror(f"{dotted}: {DECLARATION} is for strings, integers and booleans")
        header = PREFIX + name.lower()
        if header in mirrors:
            raise BadMirror(f"{dotted}: another argument declares {DECLARATION} {name!r}")
        mirrors[header] = Mirror(path, header, kind)
    return tuple(mirrors.values())


def declared_by(tool: RawObject) -> tuple[Mirror, ...]:
    """Raises BadMirror as `mirrors_of()` does, and NotJson if the schema cannot be decoded."""
    schema = tool.get("inputSchema") or b""
    return mirrors_of(loads(schema)) if DECLARATION.encode() in schema else ()


class Mirrors:
    """The mirrors of one server's most recently listed tools. `where` identifies the server in the
    log."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._tools: dict[str, tuple[Mirror, ...]] = {}

    def listed(self, tools: Sequence[RawObject]) -> tuple[RawObject, ...]:
        """Return the tools whose declarations are valid. From now on, their calls get a
        header for each declared argument."""
        usable: list[RawObject] = []
        self._tools = {}
        for tool in tools:
            try:
                if mirrors := declared_by(tool):
                    self._tools[str(tool.value("name"))] = mirrors
            except (BadMirror, NotJson) as error:
                LOG.warning("%s: a tool is left out: %s", self._where, error)
                continue
            usable.append(tool)
        return tuple(usable)

    def headers_of(self, message: RawObject) -> dict[str, str]:
        """Return the headers of a request. Only requests of MCP 2026-07-28, which carry the
        protocol version in `_meta`, get any."""
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
                headers |= argument_headers(self._tools[name], params.get("arguments") or b"{}")
        return headers


def argument_headers(mirrors: tuple[Mirror, ...], arguments: bytes) -> dict[str, str]:
    """`arguments` is raw JSON. Absent and null arguments get no header."""
    rendered = {mirror.header: _rendered(_at(arguments, mirror.path)) for mirror in mirrors}
    return {header: encoded(value) for header, value in rendered.items() if value is not None}


def differing(
    mirrors: tuple[Mirror, ...], arguments: bytes, headers: Mapping[str, str]
) -> str | None:
    for mirror in mirrors:
        header, value = headers.get(mirror.header), _rendered(_at(arguments, mirror.path))
        if header is None and value is None:
            continue
        text = decoded(header)
        if text is None or value is None or not _same(mirror.kind, text, value):
            return mirror.header
    return None


def encoded(value: str) -> str:
    """Encode the value of a header, in base64 if HTTP cannot carry it unchanged."""
    if _PLAIN.fullmatch(value) and not value.startswith("=?base64?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def decoded(value: str | None) -> str | None:
    """Decode a value from `encoded()`. Returns None for malformed base64 or a missing header."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        raw = base64.b64decode(value[9:-2], validate=True)
        return raw.decode() if base64.b64encode(raw).decode() == value[9:-2] else None
    except ValueError:
        return None


def _positions(schema: object) -> Iterator[tuple[tuple[str, ...] | None, Mapping[str, Any]]]:
    """Return the schemas inside a JSON Schema, with the path of the argument that each describes.
    The path is None if the schema cannot be reached through `properties` alone. Data, such as
    `default` and `enum`, is skipped, and `$ref` is not followed."""
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
                stack += [(None, branch) for branch in inside]
            elif word in _NAMED_SCHEMAS and isinstance(inside, dict):
                stack += [(None, branch) for branch in inside.values()]


def _at(arguments: bytes, path: tuple[str, ...]) -> bytes:
    raw = arguments
    for name in path:
        try:
            raw = (RawObject.parse(raw).get(name) or b"") if kind_of(raw) == "object" else b""
        except NotJson:
            return b""
    return raw


def _rendered(raw: bytes) -> str | None:
    """Return a value as the text of a header, or None if no header can carry it. Numbers keep their
    notation unless it has an exponent."""
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
    left, right = _DECIMAL.fullmatch(header), _DECIMAL.fullmatch(value)
    return left is not None and right is not None and left.groups() == right.groups()
