"""Describe settings to the person who edits them, and find the line on which a file sets a key.

A description such as "a whole number of milliseconds, like 300" never mentions a Python type.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

CHOICES = "choices"
"""The metadata key for the names that an option accepts, if the type of the option does not list
them."""
UNITS: Mapping[str, str] = {
    "seconds": "seconds",
    "minutes": "minutes",
    "days": "days",
    "ms": "milliseconds",
    "bytes": "bytes",
    "chars": "characters",
    "tokens": "tokens",
}
"""Units, keyed by the last word of a setting's name."""


def type_hint(kind: Any, name: str, default: Any) -> str:
    """Describe the values that an option accepts. `default` serves as an example."""
    listed = listed_choices_of(kind)
    kind = _without_none(kind)
    choices = choices_of(kind)
    if get_origin(kind) is tuple:
        return f"a list of {', '.join(listed)}" if listed else 'a list of strings, like ["a", "b"]'
    if choices and listed:
        return f"{', '.join(choices)}, or a list of {', '.join(listed)}"
    if choices:
        return f"one of {', '.join(filter(None, choices))}"
    if kind is bool:
        return "true or false"
    if kind is int or kind is float:
        return _number(kind, name, default)
    if kind is str:
        return "a string in quotes"
    if get_origin(get_args(kind)[1]) is Mapping:
        return "tables with a number above 0 for each name, like { howto = { patterns = 1.5 } }"
    values = "value" if Any in get_args(kind) else "string"
    return f'a table of names, each with a {values}, like {{ NAME = "{values}" }}'


def choices_of(kind: Any) -> Sequence[str]:
    """Return the names that a type allows, or () if it allows any."""
    kind = _without_none(kind)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return [str(choice) for choice in kind]
    return get_args(kind) if get_origin(kind) is Literal else ()


def listed_choices_of(kind: Any) -> Sequence[str]:
    """Return the names that a list of this type may contain, or () if it is not a list of names."""
    for option in get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,):
        if get_origin(option) is tuple and (names := choices_of(get_args(option)[0])):
            return names
    return ()


def shown(value: Any) -> str:
    """Format a value on one line, roughly as it appears in the file."""
    if isinstance(value, str):
        return repr(value)
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def line_of(text: str, key: str) -> int | None:
    """Return the 1-based line on which a TOML document sets the dotted `key`, or None if unknown.

    It is the first line that, together with all lines before it, sets the key.
    """
    lines = text.splitlines(keepends=True)
    last = key.rpartition(".")[2]
    for number, line in enumerate(lines, 1):
        if last in line and not _sets(lines[: number - 1], key) and _sets_soon(lines, number, key):
            return number
    return None


def _sets_soon(lines: Sequence[str], number: int, key: str) -> bool:
    """Return whether the lines up to `number` set the key. If they end inside a value, the lines
    that complete it are added."""
    for end in range(number, len(lines) + 1):
        sets = _sets(lines[:end], key)
        if sets is not None:
            return sets
    return False


def _sets(lines: Sequence[str], key: str) -> bool | None:
    """Return whether these lines set `key`, or None if they end inside a value."""
    try:
        return _holds(tomllib.loads("".join(lines)), key)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _holds(table: Any, key: str) -> bool:
    """Return whether a table contains the dotted `key`. The names in the key, such as tool
    patterns, may contain dots themselves."""
    if not isinstance(table, Mapping):
        return False
    return key in table or any(
        key.startswith(f"{name}.") and _holds(value, key.removeprefix(f"{name}."))
        for name, value in table.items()
    )


def _number(kind: Any, name: str, default: Any) -> str:
    number = "a whole number" if kind is int else "a number"
    unit = UNITS.get(name.rpartition("_")[2])
    example = f"{default:g}" if kind is float and default else default
    counted = f"{number} of {unit}" if unit else number
    return f"{counted}, like {example}" if isinstance(default, int | float) and default else counted


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, UnionType):
        return next(part for part in get_args(kind) if part is not type(None))
    return kind
