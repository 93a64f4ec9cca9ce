"""The shapes of capabilities and definitions that clients accept.

A client reads a list in one piece. If one definition is invalid, the official TypeScript SDK (zod)
and Python SDK (pydantic) reject the whole list, which behind a gateway is the list of all servers.
Each definition is therefore checked here first, against both SDKs. Where nothing that a caller
needs is lost, it is repaired: optional members of a wrong type are removed, and a missing schema
becomes one that accepts any arguments. Any other invalid definition is left out.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from upwell.wire.rawjson import RawObject, depth

MAX_DEPTH = 100
"""Definitions that are nested more deeply are left out. pydantic reads about 200 levels."""
MAX_SHOWN_CHARS = 60
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_URI = re.compile(r"(?!(?:https?|wss?|ftp):(?:/{0,2}$|//[/?#]))[A-Za-z][A-Za-z0-9+.-]*:\S")
_DATE_TIME = re.compile(
    r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?"
    r"(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
)


class Unfit(ValueError):
    """A value that clients reject and that cannot be repaired. The message is its path in the
    definition, followed by what is wrong."""


class CheckedDefinition(Struct, frozen=True):
    """A definition that clients accept, or None, and then the reason in `fault`. `label` names the
    definition."""

    label: str
    entry: RawObject | None = None
    fault: str = ""


Check = Callable[[Any], Any]
"""Returns the value, repaired if necessary. Raises `Unfit` if that is impossible."""


def checked(member: str, entry: RawObject) -> CheckedDefinition:
    """Check one entry of a list. `member` is the list's name in the result: `tools`, `prompts`,
    `resources` or `resourceTemplates`. A valid entry is returned byte for byte."""
    kind, key, shape = _KINDS[member]
    label, raw = kind, entry.encode()
    try:
        if depth(raw) > MAX_DEPTH:
            raise Unfit(f"is nested more than {MAX_DEPTH} levels deep")
        value = json.loads(raw, parse_constant=_refuse_constant)
        label = f"{kind} {_shown(value.get(key))}"
        repaired = shape(value)
        return CheckedDefinition(label, _with_changes(entry, value, repaired))
    except ValueError as error:
        return CheckedDefinition(label, fault=str(error).lstrip(". "))


def _with_changes(entry: RawObject, value: Any, repaired: Any) -> RawObject:
    """Replace the members of `entry` that were repaired. The others stay as the same bytes."""
    for name in value.keys() - repaired.keys():
        entry = entry.without(name)
    for name, part in repaired.items():
        is_changed = name not in value or part != value[name]
        if not is_changed and not _SURROGATE_ESCAPE.search(entry.get(name) or b""):
            continue
        text = json.dumps(part, ensure_ascii=False, allow_nan=False)
        # Half of a character beyond U+FFFF is left where a server cuts a text carelessly.
        whole = _SURROGATE.sub("\ufffd", text)
        if is_changed or whole != text:
            entry = entry.replaced(name, whole.encode())
    return entry


def accepted_capabilities(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    return {name: part for name, part in _capabilities(value).items() if _is_readable([name, part])}


def _is_readable(value: Any) -> bool:
    try:
        raw = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return depth(raw) <= MAX_DEPTH


def _refuse_constant(name: str) -> None:
    raise Unfit(f"contains {name}, which is not JSON")


def _shown(value: object) -> str:
    return json.dumps(value)[:MAX_SHOWN_CHARS] if isinstance(value, str) else "without a name"


def _is(kind: type, name: str) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, kind):
            raise Unfit(f" is {json.dumps(value)[:MAX_SHOWN_CHARS]}, not {name}")
        return value

    return check


_text = _is(str, "a string")
_flag = _is(bool, "true or false")
_any_object = _is(dict, "an object")
_any_list = _is(list, "a list")


def _one_of(*values: str) -> Check:
    def check(value: Any) -> Any:
        if value not in values:
            raise Unfit(f" is not one of {', '.join(values)}")
        return value

    return check


def _list_of(item: Check) -> Check:
    def check(value: Any) -> Any:
        return [_member(item, entry, f"[{at}]") for at, entry in enumerate(_any_list(value))]

    return check


def _object(required: Mapping[str, Check], optional: Mapping[str, Check]) -> Check:
    """Check an object. Optional members that clients would reject are removed."""

    def check(value: Any) -> Any:
        repaired = dict(_any_object(value))
        for name, part in required.items():
            repaired[name] = _member(part, value.get(name), f".{name}")
        for name in optional.keys() & value.keys():
            try:
                repaired[name] = optional[name](value[name])
            except Unfit:
                del repaired[name]
        return repaired

    return check


def _member(part: Check, value: Any, path: str) -> Any:
    try:
        return part(value)
    except Unfit as error:
        raise Unfit(f"{path}{error}") from error


def _schema(value: Any) -> Any:
    """Check the schema of a tool's arguments. Arguments are always an object, so a schema without a
    type loses nothing when it says so."""
    # PHP and Lua write an empty object as an empty list.
    if value is None or value == []:
        return {"type": "object"}
    repaired = dict(_any_object(value))
    kind = value.get("type")
    if kind is None or (isinstance(kind, list) and "object" in kind):
        repaired["type"] = "object"
    elif kind != "object":
        raise Unfit(f'.type is {json.dumps(kind)[:MAX_SHOWN_CHARS]}, not "object"')
    if value.get("properties") in (None, []):
        repaired.pop("properties", None)
    else:
        properties = _member(_any_object, value["properties"], ".properties")
        repaired["properties"] = {
            name: _member(_property, schema, f".properties.{name}")
            for name, schema in properties.items()
        }
    if "required" in value:
        names = value["required"] if isinstance(value["required"], list) else []
        repaired["required"] = [name for name in names if isinstance(name, str)]
    return repaired


def _property(value: Any) -> Any:
    """Check the schema of one argument. `true` and `false` are valid schemas, which the TypeScript
    SDK rejects, so they are written as objects."""
    if value is None or value is True or value == []:
        return {}
    return {"not": {}} if value is False else _any_object(value)


def _result_schema(value: Any) -> Any:
    _one_of("object")(_any_object(value).get("type"))
    return _schema(value)


def _uri(value: Any) -> Any:
    if not _URI.match(_text(value)):
        raise Unfit(f" is {_shown(value)}, not a URI")
    return value


def _date_time(value: Any) -> Any:
    if not _DATE_TIME.fullmatch(_text(value)):
        raise Unfit(" is not a date and time")
    return value


def _priority(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise Unfit(" is not a number from 0 to 1")
    return value


def _size(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1:
        raise Unfit(" is not a whole number")
    return value


def _named_by(key: str, shape: Check) -> Check:
    """Let the member `key` stand in for a missing name."""

    def check(value: Any) -> Any:
        has_name = isinstance(value.get("name"), str)
        return shape(value if has_name else {**value, "name": value.get(key)})

    return check


_ICON = _object(
    {"src": _text},
    {"mimeType": _text, "sizes": _list_of(_text), "theme": _one_of("light", "dark")},
)
_ANNOTATIONS = _object(
    {},
    {
        "audience": _list_of(_one_of("user", "assistant")),
        "priority": _priority,
        "lastModified": _date_time,
    },
)
_DESCRIBED = {
    "title": _text,
    "description": _text,
    "icons": _list_of(_ICON),
    "_meta": _any_object,
}
_RESOURCE = {**_DESCRIBED, "mimeType": _text, "annotations": _ANNOTATIONS}
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_TOOL = _object(
    {"name": _text, "inputSchema": _schema},
    {
        **_DESCRIBED,
        "outputSchema": _result_schema,
        "annotations": _object({}, {"title": _text, **dict.fromkeys(_HINTS, _flag)}),
        "execution": _object({}, {"taskSupport": _one_of("required", "optional", "forbidden")}),
    },
)
_ARGUMENT = _object({"name": _text}, {"title": _text, "description": _text, "required": _flag})


def _arguments(value: Any) -> Any:
    return _list_of(_ARGUMENT)([] if value is None else value)


def _prompt(value: Any) -> Any:
    required = {"name": _text, **({"arguments": _arguments} if "arguments" in value else {})}
    return _object(required, _DESCRIBED)(value)


_KINDS: Mapping[str, tuple[str, str, Check]] = {
    "tools": ("tool", "name", _TOOL),
    "prompts": ("prompt", "name", _prompt),
    "resources": (
        "resource",
        "uri",
        _named_by("uri", _object({"uri": _uri, "name": _text}, {**_RESOURCE, "size": _size})),
    ),
    "resourceTemplates": (
        "template",
        "uriTemplate",
        _named_by("uriTemplate", _object({"uriTemplate": _text, "name": _text}, _RESOURCE)),
    ),
}
"""What an entry of each list is called, the member that names it, and its shape."""


def _capability(value: Any) -> Any:
    """A bare `true`, and PHP's empty object, declare a capability without features."""
    return {} if value is True or value == [] else _any_object(value)


def _objects(value: Any) -> Any:
    return {name: item for name, item in _any_object(value).items() if isinstance(item, dict)}


def _features(*names: str) -> Check:
    shape = _object({}, dict.fromkeys(names, _flag))
    return lambda value: shape(_capability(value))


_CAPABILITIES: Mapping[str, Check] = {
    "experimental": _objects,
    "extensions": _objects,
    "tools": _features("listChanged"),
    "prompts": _features("listChanged"),
    "resources": _features("listChanged", "subscribe"),
    "tasks": _object(
        {},
        {
            "list": _any_object,
            "cancel": _any_object,
            "requests": _object({}, {"tools": _object({}, {"call": _any_object})}),
        },
    ),
}


def _capabilities(value: Mapping[str, Any]) -> Any:
    return _object({}, {name: _CAPABILITIES.get(name, _capability) for name in value})(value)


# -- output schemas


def compiles(schema: Mapping[str, Any]) -> bool:
    """Return whether clients can compile an output schema. The TypeScript SDK compiles the output
    schemas of a whole list with Ajv, and rejects the list if one does not compile. Where it is
    uncertain, for example because of an unusual regular expression, the answer is False."""
    try:
        return _compiles(schema, schema, is_root=True)
    except Unfit:
        return False


_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_SCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains")
_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")
_NUMBERS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
)
_UNCERTAIN = frozenset(
    {"$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef", "nullable"}
    | {"dependencies", "dependentRequired", "dependentSchemas", "discriminator", "propertyNames"}
    | {"additionalItems", "unevaluatedItems", "unevaluatedProperties", "minContains", "maxContains"}
)
_PLAIN_PATTERN = re.compile(r"(?:[^\\(]|\((?!\?)|\(\?[:=!]|\\[dDwWsSbBnrtfv^$\\.*+?()\[\]{}|/])*+")
"""Matches regular expressions that Python and JavaScript read alike."""


def _compiles(schema: Any, root: Mapping[str, Any], *, is_root: bool = False) -> bool:
    if not isinstance(schema, dict):
        return isinstance(schema, bool)
    if schema.keys() & _UNCERTAIN or ("$id" in schema and not is_root):
        return False
    for keyword, value in schema.items():
        if keyword in _SCHEMAS:
            is_usable = _compiles(value, root)
        elif keyword in _SCHEMA_LISTS:
            is_usable = bool(value) and all(_compiles(part, root) for part in _any_list(value))
        elif keyword in _NAMED_SCHEMAS:
            parts = _any_object(value)
            is_usable = all(_compiles(part, root) for part in parts.values())
            is_usable &= keyword != "patternProperties" or all(map(_is_plain_pattern, parts))
        else:
            test = _KEYWORDS.get(keyword)
            is_usable = test is None or test(value, root)
        if not is_usable:
            return False
    return True


def _is_type(value: Any) -> bool:
    kinds = value if isinstance(value, list) else [value]
    return bool(kinds) and all(isinstance(kind, str) and kind in _TYPES for kind in kinds)


def _is_plain_pattern(value: Any) -> bool:
    if not isinstance(value, str) or not _PLAIN_PATTERN.fullmatch(value):
        return False
    try:
        re.compile(value)
    except re.error:
        return False
    return True


def _resolves(value: Any, root: Any) -> bool:
    if not isinstance(value, str) or not value.startswith("#"):
        return False
    for step in value[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        root = root.get(name) if isinstance(root, dict) else None
    return isinstance(root, dict | bool) and value[1:2] in ("", "/")


_KEYWORDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "type": lambda value, _: _is_type(value),
    "enum": lambda value, _: isinstance(value, list) and bool(value),
    "required": lambda value, _: (
        isinstance(value, list) and all(isinstance(name, str) for name in value)
    ),
    "pattern": lambda value, _: _is_plain_pattern(value),
    "format": lambda value, _: isinstance(value, str),
    "uniqueItems": lambda value, _: isinstance(value, bool),
    "$ref": _resolves,
    **dict.fromkeys(
        _NUMBERS,
        lambda value, _: isinstance(value, int | float) and not isinstance(value, bool),
    ),
}
