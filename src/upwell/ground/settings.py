"""Check the types, ranges, choices and addresses of settings when the configuration is read.
Mistakes are therefore reported immediately, not by the first call that needs the setting.

Settings are described to the person who edits them, and the line is found on which a file sets a
key. A description such as "a whole number of milliseconds, like 300" never mentions a Python type.
"""

import dataclasses
import difflib
import json
import tomllib
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec

from upwell.ground.errors import ConfigError
from upwell.ground.secrets.mask import masked_address, masked_words, names_secret

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


SHARES = frozenset({"min_score", "cooldown_similarity", "min_confidence", "min_result_retention"})
MAX_NUMBER = 10**12
"""The largest number that a setting accepts. It rules out infinity."""
ADDRESSES = frozenset({"url", "base_url"})
DATABASE = "store.url"
"""The only setting that accepts the address of a database."""
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_DATABASES = ("postgresql", "postgres")
_DATABASE_FORM = (
    "postgresql://USER:PASSWORD@HOST/DATABASE, with signs such as @ and / in the password "
    "percent-encoded (%40, %2F)"
)
_FLAGS: Mapping[Any, bool] = {"on": True, "off": False, "yes": True, "no": False}


def checked(kind: type, key: str, name: str, value: Any, origin: str, known: Sequence[str]) -> Any:
    """Return `value` converted for the option `name` of the dataclass `kind`.

    `key` and `origin` identify the setting in errors. `known` lists the names of all options.

    Raises:
        ConfigError: the option does not exist, or does not accept this value.
    """
    if name not in known:
        raise unknown(key, name, known, origin)
    hint = get_type_hints(kind, include_extras=True)[name]
    choices = _choices(kind, name, hint)
    words = listed_choices_of(hint)
    if words and isinstance(value, str) and value not in choices:
        value = _words_of(key, value, [*choices, *words], origin)
    elif choices and isinstance(value, str) and value not in choices:
        raise _no_choice(key, value, choices, origin)
    _check_names(key, value, hint, origin)
    try:
        converted = msgspec.convert(
            _FLAGS.get(value, value) if hint is bool and isinstance(value, str) else value,
            hint,
            strict=not isinstance(value, str),
        )
    except (msgspec.ValidationError, TypeError) as error:
        default = next(entry.default for entry in dataclasses.fields(kind) if entry.name == name)
        allowed = choices if hint is str else ()
        expected = (
            f"one of {', '.join(filter(None, allowed))}"
            if allowed
            else type_hint(hint, name, default)
        )
        raise ConfigError(
            f"{key} in {origin} is {shown(masked(key, value))}: must be {expected}",
            key=key,
            origin=origin,
            hint=_as_json(hint, origin, value),
        ) from error
    _check_range(key, name, converted, origin)
    return converted


def unknown(key: str, name: str, known: Sequence[str], origin: str) -> ConfigError:
    """Return the error for an unknown key. The hint suggests the most similar key, or lists the
    known keys if none is similar."""
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"known here: {', '.join(known)}"
    return ConfigError(f"unknown key {key!r} in {origin}", key=key, origin=origin, hint=hint)


def masked(key: str, value: Any) -> Any:
    """Return `value` with secrets replaced by `***`.

    These are values whose names denote secrets, everything in `env` and `headers`, and credentials
    in addresses and arguments.
    """
    parts = key.lower().replace("-", "_").split(".")
    secret = bool(value) and names_secret(parts[-1])
    if secret or any(part in ("env", "headers") for part in parts[:-1]):
        return "***"
    if isinstance(value, Mapping):
        hidden = parts[-1] in ("env", "headers")
        return {name: "***" if hidden else masked(f"{key}.{name}", v) for name, v in value.items()}
    if isinstance(value, str) and parts[-1].endswith("url"):
        return masked_address(value)
    if parts[-1] in ("args", "command") and value:
        words = [value] if isinstance(value, str) else value
        if isinstance(words, list | tuple) and all(isinstance(word, str) for word in words):
            masked_value = masked_words(words)
            return masked_value[0] if isinstance(value, str) else masked_value
    return value


def _check_range(key: str, name: str, converted: Any, origin: str) -> None:
    most = 1 if name in SHARES else None
    if isinstance(converted, int | float) and not 0 <= converted <= (most or MAX_NUMBER):
        bounds = (
            "between 0 and 1"
            if most
            else f"between 0 and {MAX_NUMBER}"
            if converted > 0
            else "0 or more"
        )
        raise ConfigError(
            f"{key} in {origin} is {converted!r}: must be {bounds}", key=key, origin=origin
        )
    if name in ADDRESSES and converted:
        _check_address(key, converted, origin)


def _check_address(key: str, address: str, origin: str) -> None:
    if key == DATABASE:
        _check_store(key, address, origin)
    elif not _is_address(address, ("http", "https")):
        raise ConfigError(
            f"{key} in {origin} is {masked(key, address)!r}: not an HTTP address",
            key=key,
            origin=origin,
            hint="write http://HOST:PORT/PATH or https://…",
        )


def _check_store(key: str, address: str, origin: str) -> None:
    """Reject an address that belongs to neither a database nor a gateway, or that would expose a
    secret."""
    fault, hint = "", "write https://HOST"
    is_address = _is_address(address, (*_DATABASES, "https", "http"))
    if not is_address and not _is_by_socket(address):
        fault = "not the address of a PostgreSQL database or a gateway"
        hint = f"write {_DATABASE_FORM}, or https://HOST for a gateway"
    elif urlsplit(address).scheme in _DATABASES:
        # libpq ends the password at the first `@`. Its errors would show the rest as part of the
        # host.
        if urlsplit(address).netloc.count("@") > 1:
            fault = "not the address of a PostgreSQL database"
            hint = f"write {_DATABASE_FORM}"
    elif "@" in urlsplit(address).netloc:
        fault = "the address of a gateway must not contain a password"
        hint = "store the token with `upwell team join`"
    elif urlsplit(address).scheme == "http" and urlsplit(address).hostname not in LOOPBACK:
        fault = "the token would travel unencrypted"
    if fault:
        raise ConfigError(
            f"{key} in {origin} is {masked(key, address)!r}: {fault}",
            key=key,
            origin=origin,
            hint=hint,
        )


def _check_names(key: str, value: Any, hint: Any, origin: str) -> None:
    names = choices_of(get_args(hint)[0]) if get_origin(hint) is Mapping else ()
    if names and isinstance(value, Mapping):
        for name in value:
            if name not in names:
                raise unknown(f"{key}.{name}", name, names, origin)


def _as_json(hint: Any, origin: str, value: Any) -> str:
    if not isinstance(value, str) or not origin.isupper():
        return ""
    if get_origin(hint) is tuple:
        return """in a variable as JSON: '["a", "b"]'"""
    if get_origin(hint) is not Mapping:
        return ""
    if get_origin(get_args(hint)[1]) is Mapping:
        return """in a variable as JSON: '{"NAME": {"NAME": 1.5}}'"""
    return """in a variable as JSON: '{"NAME": "string"}'"""


def _choices(kind: type, name: str, hint: Any) -> Sequence[str]:
    if allowed := choices_of(hint):
        return allowed
    declared = {entry.name: entry.metadata for entry in dataclasses.fields(kind)}
    return tuple(declared[name].get(CHOICES, ()))


def _words_of(key: str, text: str, known: Sequence[str], origin: str) -> Sequence[str]:
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in known:
            raise _no_choice(key, word, known, origin)
    return words


def _no_choice(key: str, value: str, choices: Sequence[str], origin: str) -> ConfigError:
    nearest = difflib.get_close_matches(value.lower(), choices, n=1, cutoff=0.6)
    known = f"one of {', '.join(filter(None, choices))}"
    return ConfigError(
        f"{key} in {origin} is {value!r}, which is not a known value",
        key=key,
        origin=origin,
        hint=f"did you mean {nearest[0]!r}? Use {known}" if nearest else f"use {known}",
    )


def _is_by_socket(url: str) -> bool:
    """Return whether this is the address of a database without a host: libpq then connects by the
    socket in the folder `host` of the query, or else in its usual folder."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    names_database = len(parts.path) > 1 or "dbname=" in parts.query
    return parts.scheme in _DATABASES and not parts.hostname and names_database


def _is_address(url: str, schemes: Collection[str]) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
