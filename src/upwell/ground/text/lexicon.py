"""The lexicon: word lists from `lexicon.toml` in this folder.

A user's file in the same format can add words and languages, and remove words.
"""

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import fields, replace

from upwell.ground.errors import ConfigError
from upwell.ground.files import read_regular_file

FILE_NAME = "lexicon.toml"
SHIPPED = Path(__file__).with_name(FILE_NAME)
KINDS = ("comparison", "troubleshoot", "howto", "location", "explanation", "general")
"""The kinds of intent that a prompt may have, most specific first (see tests/NAMES.md)."""
WEIGHTS: Mapping[str, int] = {"strong": 3, "usual": 2, "weak": 1}
CODE, WITHOUT, INTENT = "code", "without", "intent"
_LANGUAGE_LISTS = (
    "stop_words",
    "greetings",
    "acknowledgements",
    "not_names",
    "openings",
    "requests",
)
_CODE_LISTS = ("boilerplate", "commands", "tool_words")
MAX_FILE_BYTES = 1_000_000
MAX_PHRASE_WORDS = 12


class Signal(Struct, frozen=True):
    """A `phrase` that indicates an intent of `kind`; `weight` is 1 (weak) to 3 (strong)."""

    kind: str
    weight: int
    phrase: str


class Lexicon(Struct, frozen=True, kw_only=True, eq=False):
    """The words and phrases of all languages, as written in the files.

    `not_names`: capitalised words that are not names. `openings`: phrases that begin a message.
    `requests`: phrases that ask for something. `boilerplate`, `commands`, `tool_words`:
    uninformative words in paths, in commands and in the names of tools.

    Lexicons are compared by identity, so that data derived from a lexicon can be cached.
    """

    stop_words: frozenset[str] = frozenset()
    greetings: frozenset[str] = frozenset()
    acknowledgements: frozenset[str] = frozenset()
    not_names: frozenset[str] = frozenset()
    openings: frozenset[str] = frozenset()
    requests: frozenset[str] = frozenset()
    boilerplate: frozenset[str] = frozenset()
    commands: frozenset[str] = frozenset()
    tool_words: frozenset[str] = frozenset()
    signals: tuple[Signal, ...] = ()


@lru_cache(maxsize=1)
def shipped() -> Lexicon:
    """Return upwell's own lexicon."""
    return _with(Lexicon(), _document(SHIPPED), SHIPPED)


def extended(path: Path) -> Lexicon:
    """Return the shipped lexicon with the changes in the file at `path`, if the file exists.

    Raises:
        ConfigError: the file cannot be read, or is not a valid lexicon.
    """
    if not path.exists():
        return shipped()
    return _with(shipped(), _document(path), path)


def _document(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise _fault(path, "is larger than 1 MB")
        return tomllib.loads(read_regular_file(path).decode())
    except tomllib.TOMLDecodeError as error:
        raise _fault(path, f"is not TOML: {error}", hint="fix that line") from error
    except UnicodeDecodeError as error:
        raise _fault(path, f"is not UTF-8 (byte {error.start})", hint="save it as UTF-8") from error
    except OSError as error:
        raise _fault(path, f"cannot be read: {error.strerror}", hint="check its owner") from error


def _with(lexicon: Lexicon, document: Mapping[str, Any], path: Path) -> Lexicon:
    for name, table in document.items():
        if not isinstance(table, Mapping):
            raise _fault(path, f"has {name!r} outside a table", hint="[en], [es], [code] …")
        lexicon = (
            _without(lexicon, table, path)
            if name == WITHOUT
            else _added(lexicon, name, table, path)
        )
    return lexicon


def _added(lexicon: Lexicon, name: str, table: Mapping[str, Any], path: Path) -> Lexicon:
    known = _CODE_LISTS if name == CODE else (*_LANGUAGE_LISTS, INTENT)
    for key, value in table.items():
        key_path = f"{name}.{key}"
        if key not in known:
            raise _unknown(path, key_path, key, known)
        if key == INTENT:
            signals = tuple(_signals(path, key_path, value))
            lexicon = replace(lexicon, signals=lexicon.signals + signals)
        else:
            words = frozenset(_listed(path, key_path, value))
            lexicon = replace(lexicon, **{key: getattr(lexicon, key) | words})
    return lexicon


def _without(lexicon: Lexicon, table: Mapping[str, Any], path: Path) -> Lexicon:
    known = tuple(field.name for field in fields(Lexicon))
    for key, value in table.items():
        if key not in known:
            raise _unknown(path, f"{WITHOUT}.{key}", key, known)
        removed = {word.casefold() for word in _listed(path, f"{WITHOUT}.{key}", value)}
        remaining: Any = (
            tuple(s for s in lexicon.signals if s.phrase.casefold() not in removed)
            if key == "signals"
            else frozenset(w for w in getattr(lexicon, key) if w.casefold() not in removed)
        )
        lexicon = replace(lexicon, **{key: remaining})
    return lexicon


def _signals(path: Path, key_path: str, value: Any) -> Iterator[Signal]:
    for kind, table in _table(path, key_path, value, KINDS).items():
        for strength, phrases in _table(path, f"{key_path}.{kind}", table, tuple(WEIGHTS)).items():
            for phrase in _listed(path, f"{key_path}.{kind}.{strength}", phrases):
                _check_phrase(path, f"{key_path}.{kind}.{strength}", phrase)
                yield Signal(kind, WEIGHTS[strength], phrase)


def _check_phrase(path: Path, key_path: str, phrase: str) -> None:
    words = phrase.split()
    bare = [word for word in words if word != "..."]
    has_words = all(part.strip("^*") for word in bare for part in word.split("|"))
    gaps = "... ..." in " ".join(words) or "..." in (*words[:1], *words[-1:])
    if not bare or not has_words or gaps or len(words) > MAX_PHRASE_WORDS:
        raise _fault(
            path,
            f"has {phrase!r} in {key_path}, which is not a phrase",
            hint='words like "how do|can ... fix*"',
        )


def _table(path: Path, key_path: str, value: Any, known: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _fault(
            path, f"has a {key_path} that is not a table", hint=f"known: {', '.join(known)}"
        )
    for key in value:
        if key not in known:
            raise _unknown(path, f"{key_path}.{key}", key, known)
    return value


def _listed(path: Path, key_path: str, value: Any) -> list[str]:
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [item for item in value if item.strip()]
    raise _fault(path, f"has a {key_path} that is not a list of words", hint='["one", "two words"]')


def _unknown(path: Path, key_path: str, key: str, known: Sequence[str]) -> ConfigError:
    nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"known here: {', '.join(known)}"
    return _fault(path, f"has an unknown list {key_path}", hint=hint)


def _fault(path: Path, problem: str, hint: str = "") -> ConfigError:
    return ConfigError(f"{path} {problem}", origin=str(path), hint=hint)
