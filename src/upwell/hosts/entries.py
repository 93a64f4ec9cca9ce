"""An MCP server as an agent's file says it, read as what `config.toml` would say."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

_DROPPED = frozenset(
    "name description gallery version trust autoApprove alwaysAllow timeout enabled disabled "
    "startup_timeout_sec startup_timeout_ms tool_timeout_sec".split()
)
_READ = frozenset(
    "type command args env environment cwd url httpUrl serverUrl headers http_headers".split()
)
_OVER_HTTP = {"": "", "http": "", "streamable-http": "", "streamableHttp": "", "remote": ""}
_FILLED_IN = re.compile(r"\$\{[^}]*\}?|\{(?:env|file):[^}]*\}?")
_FILLED_IN_BY_GEMINI = re.compile(r"\$\w+|" + _FILLED_IN.pattern)


@dataclass(frozen=True, slots=True)
class Entry:
    """`table` is what goes below `[server.NAME]`; empty where the server must stay in the agent's
    file, and then `left` says why. `ours`: it is upwell itself."""

    name: str
    table: Mapping[str, Any] = field(default_factory=dict)
    left: str = ""
    ours: bool = False


def read_entry(name: str, raw: Any, agent: str, folder: Path | None = None) -> Entry:
    """The server called `name` in a file of `agent`; `folder` is the project it stands in."""
    if not isinstance(raw, Mapping):
        return Entry(name, left="it is not a table")
    if is_upwell(raw):
        return Entry(name, left="it is upwell", ours=True)
    if raw.get("disabled") or raw.get("enabled") is False:
        return Entry(name, left="it is switched off")
    foreign = [key for key, value in raw.items() if key not in _DROPPED | _READ and value]
    if foreign:
        return Entry(name, left=f"upwell has no {foreign[0]!r}")
    filled = _filled_in(raw, _FILLED_IN_BY_GEMINI if agent == "gemini" else _FILLED_IN)
    if filled:
        return Entry(name, left=f"only the agent can fill in {filled}")
    table = _over_http(raw, agent) if _address(raw) else _program(raw, folder)
    return Entry(name, table) if table else Entry(name, left="it has no command or address")


def is_upwell(raw: Mapping[str, Any]) -> bool:
    """Does this entry run `upwell serve`, by its words, whatever starts it?"""
    words = [Path(word).name for word in _words(raw)]
    return ("upwell", "serve") in pairwise(words)


def _words(raw: Mapping[str, Any]) -> list[str]:
    """Program and arguments; [] where they are not words."""
    command, args = raw.get("command"), raw.get("args") or []
    words = [*(command if isinstance(command, list) else [command]), *args]
    return words if command and all(isinstance(word, str) for word in words) else []


def _address(raw: Mapping[str, Any]) -> Any:
    return raw.get("url") or raw.get("httpUrl") or raw.get("serverUrl")


def _program(raw: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    words, env = _words(raw), _texts(raw.get("env") or raw.get("environment"))
    if not words or env is None or raw.get("type") not in (None, "stdio", "local"):
        return {}
    cwd = raw.get("cwd") or ("." if folder else "")
    if folder and cwd:
        cwd = str((folder / cwd).resolve())
    table = {"command": words[0], "args": words[1:], "env": env, "cwd": cwd}
    return {key: value for key, value in table.items() if value}


def _over_http(raw: Mapping[str, Any], agent: str) -> dict[str, Any]:
    kind = raw.get("type") or ""
    if agent == "gemini" and not kind and not raw.get("httpUrl"):
        kind = "sse"
    transport = "sse" if kind == "sse" else _OVER_HTTP.get(kind)
    headers, url = _texts(raw.get("headers") or raw.get("http_headers")), _address(raw)
    fine = isinstance(url, str) and url.startswith(("http://", "https://"))
    if not fine or headers is None or transport is None:
        return {}
    table = {"url": url, "headers": headers, "transport": transport}
    return {key: value for key, value in table.items() if value}


def _texts(value: Any) -> dict[str, str] | None:
    """A table of texts, numbers written as such; None where it is something else."""
    if not value:
        return {}
    if not isinstance(value, Mapping):
        return None
    fine = all(isinstance(text, str | int) for text in value.values())
    return {str(key): str(text) for key, text in value.items()} if fine else None


def _filled_in(value: Any, pattern: re.Pattern[str]) -> str:
    """The first place in the texts of `value` that the agent would replace, "" for none."""
    if isinstance(value, str):
        match = pattern.search(value)
        return match.group() if match else ""
    parts = value.values() if isinstance(value, Mapping) else value
    if isinstance(parts, str | int | float | None):
        return ""
    return next(filter(None, (_filled_in(part, pattern) for part in parts)), "")
