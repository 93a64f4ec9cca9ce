"""Do arguments fit a tool's schema? Only what is certain counts: a keyword that is not looked at
here, a text where something else is wanted (servers read `"5"` as 5 and `"[1]"` as a list) and a
number for a text refuse nothing. The server has the last word."""

from collections.abc import Mapping
from typing import Any

from upwell.wire.rawjson import RawObject, loads

MOST_STEPS = 10_000
MOST_LEVELS = 60
_CONTAINERS: Mapping[str, type] = {"object": dict, "array": list}


def fault(schema: RawObject, arguments: object) -> str:
    """What is wrong with `arguments`, "" where nothing certainly is.

    Raises:
        NotJson: the schema is nested too deeply to be read.
    """
    whole = loads(schema.encode())
    return _Check(whole).fault(whole, arguments, "")


class _Check:
    """One look at arguments; references lead into `whole`. Steps and levels end with
    schemas that refer to themselves."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self._whole = whole
        self._steps = MOST_STEPS
        self._level = 0

    def fault(self, schema: object, value: object, where: str) -> str:
        self._steps -= 1
        if self._steps < 0 or self._level >= MOST_LEVELS or not isinstance(schema, dict):
            return ""
        self._level += 1
        try:
            return self._found(schema, value, where)
        finally:
            self._level -= 1

    def _found(self, schema: Mapping[str, Any], value: object, where: str) -> str:
        kinds = schema.get("type", [])
        if wrong := _wrong_kind(kinds if isinstance(kinds, list) else [kinds], value):
            return f"{where or 'arguments'} must be {wrong}"
        options = schema.get("enum")
        if isinstance(options, list) and options and value not in options:
            return f"{where or 'arguments'} must be one of {_listed(options)}"
        return self._composed(schema, value, where) or self._inside(schema, value, where)

    def _composed(self, schema: Mapping[str, Any], value: object, where: str) -> str:
        referred = self._referred(schema.get("$ref"))
        for part in [referred, *_list(schema.get("allOf"))]:
            if part is not None and (wrong := self.fault(part, value, where)):
                return wrong
        for word in ("anyOf", "oneOf"):
            wrongs = [self.fault(part, value, where) for part in _list(schema.get(word))]
            if wrongs and all(wrongs):
                return wrongs[0]
        return ""

    def _inside(self, schema: Mapping[str, Any], value: object, where: str) -> str:
        if isinstance(value, dict):
            return self._members(schema, value, where)
        if isinstance(value, list):
            items = schema.get("items")
            for place, item in enumerate(value):
                if wrong := self.fault(items, item, f"{where}[{place}]"):
                    return wrong
        return ""

    def _members(self, schema: Mapping[str, Any], value: Mapping[str, Any], where: str) -> str:
        inside = f"{where}." if where else ""
        for name in _list(schema.get("required")):
            if name not in value:
                return f"{inside}{name} is missing"
        declared = schema.get("properties")
        known = declared if isinstance(declared, dict) else {}
        closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
        for name, item in value.items():
            if name in known:
                if wrong := self.fault(known[name], item, f"{inside}{name}"):
                    return wrong
            elif closed:
                names = ", ".join(known) or "nothing"
                return f"{where or 'it'} takes no {name!r}, only {names}"
        return ""

    def _referred(self, reference: object) -> object:
        """What a reference inside the document leads to; None for every other."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found: object = self._whole
        for step in reference.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        return found


def _wrong_kind(kinds: list[object], value: object) -> str:
    """`object`, `array` or both, where a value is certainly none of those wanted."""
    if not kinds or isinstance(value, str) or not all(isinstance(one, str) for one in kinds):
        return ""
    wanted = [one for one in kinds if one in _CONTAINERS]
    if isinstance(value, dict | list):
        fits = any(isinstance(value, _CONTAINERS[str(one)]) for one in wanted)
    else:
        fits = len(wanted) < len(kinds)
    return "" if fits else " or ".join(map(str, kinds))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _listed(options: list[Any], most: int = 12) -> str:
    said = ", ".join(map(repr, options[:most]))
    return f"{said} and {len(options) - most} more" if len(options) > most else said
