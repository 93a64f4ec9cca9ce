"""What a setting may be: its type, its range, the names it may have, and the shape of an address.
What is wrong with one shows when the configuration is read, not at the first call that needs it."""

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec

from upwell.ground.errors import ConfigError
from upwell.ground.names import CHOICES
from upwell.ground.veil import names_secret, veiled_address, veiled_words
from upwell.ground.wanted import choices_of, shown, wanted

SHARES = frozenset({"min_score", "cooldown_similarity", "min_confidence", "min_result_retention"})
MOST = 10**12
"""No number may be more, be it bytes or seconds: what is infinite ends no wait and fits no file."""
ADDRESSES = frozenset({"url", "base_url"})
_FLAGS: Mapping[Any, bool] = {"on": True, "off": False, "yes": True, "no": False}


def checked(kind: type, key: str, name: str, value: Any, origin: str, known: Sequence[str]) -> Any:
    """`value` as the option `name` of the dataclass `kind` takes it. `key` and `origin` say where
    it stands.

    Raises:
        ConfigError: there is no such option, or it cannot have this value.
    """
    if name not in known:
        raise unknown(key, name, known, origin)
    taken = get_type_hints(kind, include_extras=True)[name]
    choices = _choices(kind, name, taken)
    if choices and isinstance(value, str) and value not in choices:
        raise _no_choice(key, value, choices, origin)
    _check_names(key, value, taken, origin)
    try:
        found = msgspec.convert(
            _FLAGS.get(value, value) if taken is bool and isinstance(value, str) else value,
            taken,
            strict=not isinstance(value, str),
        )
    except (msgspec.ValidationError, TypeError) as error:
        default = next(entry.default for entry in dataclasses.fields(kind) if entry.name == name)
        named = choices if taken is str else ()
        must = f"one of {', '.join(filter(None, named))}" if named else wanted(taken, name, default)
        raise ConfigError(
            f"{key} in {origin} is {shown(masked(key, value))}: must be {must}",
            key=key,
            origin=origin,
            hint=_as_json(taken, origin, value),
        ) from error
    _check_range(key, name, found, origin)
    return found


def unknown(key: str, name: str, known: Sequence[str], origin: str) -> ConfigError:
    """There is no such key; the hint names the nearest."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
    return ConfigError(f"unknown key {key!r} in {origin}", key=key, origin=origin, hint=hint)


def masked(key: str, value: Any) -> Any:
    """`***` for what must not be shown: secrets by name, everything in `env` and `headers`, and in
    addresses and arguments what lets somebody in."""
    parts = key.lower().replace("-", "_").split(".")
    secret = bool(value) and names_secret(parts[-1])
    if secret or any(part in ("env", "headers") for part in parts[:-1]):
        return "***"
    if isinstance(value, Mapping):
        hidden = parts[-1] in ("env", "headers")
        return {name: "***" if hidden else masked(f"{key}.{name}", v) for name, v in value.items()}
    if isinstance(value, str) and parts[-1].endswith("url"):
        return veiled_address(value)
    if parts[-1] in ("args", "command") and value:
        return _veiled_command(value)
    return value


def _veiled_command(value: Any) -> Any:
    """Words of a command, together or one of them."""
    if isinstance(value, str):
        return veiled_words([value])[0]
    if isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
        return veiled_words(value)
    return value


def _check_range(key: str, name: str, found: Any, origin: str) -> None:
    most = 1 if name in SHARES else None
    if isinstance(found, int | float) and not 0 <= found <= (most or MOST):
        bounds = (
            "between 0 and 1" if most else f"between 0 and {MOST}" if found > 0 else "0 or more"
        )
        raise ConfigError(
            f"{key} in {origin} is {found!r}: must be {bounds}", key=key, origin=origin
        )
    if name in ADDRESSES and found and not _is_address(found):
        raise ConfigError(
            f"{key} in {origin} is {masked(key, found)!r}: not an address of HTTP",
            key=key,
            origin=origin,
            hint="write http://HOST:PORT/PATH or https://…",
        )


def _check_names(key: str, value: Any, taken: Any, origin: str) -> None:
    """The names of a table, where the type allows but a few."""
    names = choices_of(get_args(taken)[0]) if get_origin(taken) is Mapping else ()
    if names and isinstance(value, Mapping):
        for name in value:
            if name not in names:
                raise unknown(f"{key}.{name}", name, names, origin)


def _as_json(taken: Any, origin: str, value: Any) -> str:
    """A text where a list or a table is wanted: how it is written in a variable."""
    if not isinstance(value, str) or not origin.isupper():
        return ""
    if get_origin(taken) is tuple:
        return """in a variable as JSON: '["a", "b"]'"""
    if get_origin(taken) is not Mapping:
        return ""
    if get_origin(get_args(taken)[1]) is Mapping:
        return """in a variable as JSON: '{"NAME": {"NAME": 1.5}}'"""
    return """in a variable as JSON: '{"NAME": "text"}'"""


def _choices(kind: type, name: str, taken: Any) -> Sequence[str]:
    """The names a setting may have, where there are but a few."""
    if named := choices_of(taken):
        return named
    declared = {entry.name: entry.metadata for entry in dataclasses.fields(kind)}
    return tuple(declared[name].get(CHOICES, ()))


def _no_choice(key: str, value: str, choices: Sequence[str], origin: str) -> ConfigError:
    near = difflib.get_close_matches(value.lower(), choices, n=1, cutoff=0.6)
    known = f"one of {', '.join(filter(None, choices))}"
    return ConfigError(
        f"{key} in {origin} is {value!r}, which is not known",
        key=key,
        origin=origin,
        hint=f"did you mean {near[0]!r}? It may be {known}" if near else known,
    )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
