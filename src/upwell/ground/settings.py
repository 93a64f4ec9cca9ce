"""What a setting may be: its type, its range, the names it may have, and the shape of an address.
What is wrong with one shows when the configuration is read, not at the first call that needs it."""

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec

from upwell.ground.errors import ConfigError
from upwell.ground.names import CHOICES
from upwell.ground.veil import names_secret, veiled_address, veiled_words

SHARES = frozenset({"min_score", "cooldown_similarity", "min_confidence", "min_result_retention"})
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
    wanted = get_type_hints(kind)[name]
    choices = _choices(kind, name, wanted)
    if choices and isinstance(value, str) and value not in choices:
        raise _no_choice(key, value, choices, origin)
    try:
        found = msgspec.convert(
            _FLAGS.get(value, value) if wanted is bool else value,
            wanted,
            strict=not isinstance(value, str),
        )
    except (msgspec.ValidationError, TypeError) as error:
        fault = str(error).replace("`", "").lower()
        raise ConfigError(
            f"{key} in {origin} is {masked(key, value)!r}: {fault}", key=key, origin=origin
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
    if isinstance(found, int | float) and not 0 <= found <= (most or found + 1):
        wanted = "between 0 and 1" if most else "0 or more"
        raise ConfigError(
            f"{key} in {origin} is {found!r}: must be {wanted}", key=key, origin=origin
        )
    if name in ADDRESSES and found and not _is_address(found):
        raise ConfigError(
            f"{key} in {origin} is {masked(key, found)!r}: not an address of HTTP",
            key=key,
            origin=origin,
            hint="write http://HOST:PORT/PATH or https://…",
        )


def _choices(kind: type, name: str, wanted: Any) -> Sequence[str]:
    """The names a setting may have, where there are but a few."""
    for part in (wanted, *get_args(wanted)):
        if isinstance(part, type) and issubclass(part, StrEnum):
            return [str(choice) for choice in part]
        if get_origin(part) is Literal:
            return get_args(part)
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
