"""Converts an MCP server in an agent's file into a `[server.NAME]` table in `config.toml`."""

import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

PlainUrl = Literal["http", "sse"]
PLACEHOLDERS = re.compile(r"\$\{[^}]*\}?|\{(?:env|file):[^}]*\}?")
"""Placeholders that the agent fills in from the environment, a file or its own state."""
GEMINI_PLACEHOLDERS = re.compile(r"\$\w+|" + PLACEHOLDERS.pattern)
OWN_TOOLS = "it has upwell's own tools"
_IGNORED_KEYS = frozenset(
    "name description gallery version trust autoApprove alwaysAllow timeout enabled disabled "
    "startup_timeout_sec startup_timeout_ms tool_timeout_sec".split()
)
_KNOWN_KEYS = frozenset(
    "type command args env environment cwd url httpUrl serverUrl headers http_headers".split()
)
_HTTP_TYPES = frozenset({"http", "streamable-http", "streamableHttp", "remote"})


class ServerEntry(Struct, frozen=True):
    """A server in an agent's file. `table` is the content of `[server.NAME]`. It is empty if the
    server has to stay in the agent's file; `left` then gives the reason. `ours`: the server is
    upwell's gateway.
    """

    name: str
    table: Mapping[str, Any] = field(default_factory=dict)
    left: str = ""
    ours: bool = False


def read_entry(
    name: str,
    raw: Any,
    *,
    folder: Path | None = None,
    placeholders: re.Pattern[str] = PLACEHOLDERS,
    plain_url: PlainUrl = "http",
) -> ServerEntry:
    """Convert one server. `folder` is the project that the server belongs to. `placeholders`
    matches what only the agent can fill in. `plain_url` is the transport for a `url` without a
    type.
    """
    if not isinstance(raw, Mapping):
        return ServerEntry(name, left="its entry is not a table")
    if is_upwell(raw):
        if has_only_tools(raw):
            return ServerEntry(name, left=OWN_TOOLS)
        return ServerEntry(name, left="it is upwell", ours=True)
    if wrapped_words(raw):
        return ServerEntry(name, left="it stays where it is, behind `upwell wrap`")
    if raw.get("disabled") or raw.get("enabled") is False:
        return ServerEntry(name, left="it is switched off")
    unknown = [
        key for key, value in raw.items() if key not in _IGNORED_KEYS | _KNOWN_KEYS and value
    ]
    if unknown:
        return ServerEntry(name, left=f"upwell does not support {unknown[0]!r}")
    placeholder = _first_match(raw, placeholders)
    if placeholder:
        return ServerEntry(name, left=f"only the agent can fill in {placeholder}")
    if not url_of(raw) and (fault := args_fault(raw)):
        return ServerEntry(name, left=fault)
    table = _http_server(raw, plain_url) if url_of(raw) else _program(raw, folder)
    return ServerEntry(name, table) if table else ServerEntry(name, left="it has no command or URL")


def is_upwell(raw: Mapping[str, Any]) -> bool:
    """True if the entry runs `upwell serve`, directly or through a launcher."""
    words = [Path(word).name for word in words_of(raw)]
    return ("upwell", "serve") in pairwise(words)


def has_only_tools(raw: Mapping[str, Any]) -> bool:
    """True if the entry runs `upwell serve --tools`."""
    return is_upwell(raw) and "--tools" in words_of(raw)


def wrapped_words(raw: Mapping[str, Any]) -> list[str]:
    """The command line behind `upwell wrap`. Empty if the entry is not wrapped, or if it is a
    server at an address."""
    words = words_of(raw)
    start = next((at for at, pair in enumerate(pairwise(words)) if _is_wrapper(pair)), None)
    if start is None or (start > 0 and words[start - 1] != "-m"):
        return []
    rest = words[start + 2 :]
    while rest and rest[0] != "--":
        rest = rest[1:] if "=" in rest[0] else rest[2:]
    return rest[1:]


def _is_wrapper(words: tuple[str, str]) -> bool:
    return Path(words[0]).name == "upwell" and words[1] == "wrap"


def words_of(raw: Mapping[str, Any]) -> list[str]:
    """The program and its arguments. Empty if there is none, or if they are not strings."""
    command, args = raw.get("command"), raw.get("args") or []
    if not isinstance(args, list):
        return []
    words = [*(command if isinstance(command, list) else [command]), *args]
    return words if command and all(isinstance(word, str) for word in words) else []


def args_fault(raw: Mapping[str, Any]) -> str:
    """Why the arguments of a program cannot be used, or ""."""
    args = raw.get("args") or []
    if not isinstance(args, list):
        return "its args is not a list"
    are_strings = all(isinstance(word, str) for word in args)
    return "" if are_strings else "its args contain a value that is not a string"


def url_of(raw: Mapping[str, Any]) -> Any:
    return raw.get("url") or raw.get("httpUrl") or raw.get("serverUrl")


def _program(raw: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    words, env = words_of(raw), _strings(raw.get("env") or raw.get("environment"))
    if not words or env is None or raw.get("type") not in (None, "stdio", "local"):
        return {}
    cwd = raw.get("cwd") or ("." if folder else "")
    if folder and cwd:
        cwd = str((folder / cwd).resolve())
    table = {"command": words[0], "args": words[1:], "env": env, "cwd": cwd}
    return {key: value for key, value in table.items() if value}


def _http_server(raw: Mapping[str, Any], plain_url: PlainUrl) -> dict[str, Any]:
    type_ = raw.get("type") or ("http" if raw.get("httpUrl") else plain_url)
    headers, url = _strings(raw.get("headers") or raw.get("http_headers")), url_of(raw)
    is_url = isinstance(url, str) and url.startswith(("http://", "https://"))
    if not is_url or headers is None or type_ not in _HTTP_TYPES | {"sse"}:
        return {}
    table = {"url": url, "headers": headers, "transport": "sse" if type_ == "sse" else ""}
    return {key: value for key, value in table.items() if value}


def _strings(value: Any) -> dict[str, str] | None:
    if not value:
        return {}
    if not isinstance(value, Mapping):
        return None
    only_scalars = all(isinstance(item, str | int) for item in value.values())
    return {str(key): str(item) for key, item in value.items()} if only_scalars else None


def _first_match(value: Any, pattern: re.Pattern[str]) -> str:
    if isinstance(value, str):
        match = pattern.search(value)
        return match.group() if match else ""
    parts = value.values() if isinstance(value, Mapping) else value
    if isinstance(parts, str | int | float | None):
        return ""
    return next(filter(None, (_first_match(part, pattern) for part in parts)), "")
