"""The servers behind memtomem-stm, a proxy in front of an agent's MCP servers.

The proxy's entry in an agent's file runs `memtomem-stm` or `python -m memtomem_stm`. The entry's
environment may name the proxy's own configuration file. In that file each server has a prefix for
the public names of its tools (`fs__read_file`). In upwell the prefix becomes the server's name.

Source: memtomem-stm 0.6 (`cli/proxy`, `proxy/config`).
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from upwell.ground.errors import UsageError
from upwell.ground.files import read_json
from upwell.hosts.servers import ServerEntry, is_upwell, read_entry

PROGRAMS = ("memtomem-stm", "memtomem-stm-proxy", "mms")
MODULE = "memtomem_stm"
CONFIG_PATH = "MEMTOMEM_STM_PROXY__CONFIG_PATH"
DEFAULT_PATH = Path(".memtomem", "stm_proxy.json")
MAX_BYTES = 16_000_000
_LAUNCHERS = ("uv", "uvx", "run", "tool", "pipx", "--from")
_NO_PLACEHOLDERS = re.compile(r"(?!)")
"""Matches nothing: the proxy passes values on unchanged, so its file has no placeholders."""
_LIMITS = {
    "compression": "strategy",
    "max_result_chars": "max_result_chars",
    "max_result_tokens": "max_result_tokens",
    "retention_floor": "min_result_retention",
}


def is_memtomem(table: Mapping[str, Any]) -> bool:
    """True if the server runs memtomem-stm, directly or through a launcher."""
    words = [str(table.get("command", "")), *map(str, table.get("args", ()))]
    names = [Path(word).name.partition("[")[0].partition("@")[0] for word in words]
    if ("-m", MODULE) in pairwise(words):
        return True
    return names[0] in PROGRAMS or (names[0] in _LAUNCHERS and any(n in PROGRAMS for n in names))


def proxy_file(environment: Mapping[str, str], user_folder: Path) -> Path:
    """The path of the proxy's own file."""
    named = environment.get(CONFIG_PATH, "")
    if not named:
        return user_folder / DEFAULT_PATH
    inside_home = named.removeprefix("~/")
    return user_folder / inside_home if inside_home != named else Path(named)


def read_proxy(path: Path) -> Mapping[str, Any]:
    """The content of the proxy's own file.

    Raises:
        UsageError: the file cannot be read, or is not a JSON object.
    """
    content = read_json(path, MAX_BYTES)
    if not isinstance(content, Mapping):
        raise UsageError(f"cannot read {path}: not a JSON object", hint="name the proxy's file")
    return content


def proxied_servers(content: Mapping[str, Any]) -> list[ServerEntry]:
    """The servers behind the proxy. Empty if the proxy is switched off."""
    servers = content.get("upstream_servers")
    if content.get("enabled") is not True or not isinstance(servers, Mapping):
        return []
    return [
        _entry(str(name), raw)
        for name, raw in servers.items()
        if isinstance(raw, Mapping) and not is_upwell(raw)
    ]


def servers_behind(
    table: Mapping[str, Any], environment: Mapping[str, str], user_folder: Path
) -> list[ServerEntry]:
    """The servers behind this server, if it is memtomem-stm. Empty if the proxy's file cannot be
    read, or if it contains a server that upwell cannot run."""
    if not is_memtomem(table):
        return []
    own = table.get("env")
    merged = {**environment, **(own if isinstance(own, Mapping) else {})}
    try:
        content = read_proxy(proxy_file(merged, user_folder))
    except UsageError:
        return []
    entries = proxied_servers(content)
    return entries if all(entry.table for entry in entries) else []


def _entry(name: str, raw: Mapping[str, Any]) -> ServerEntry:
    prefix = raw.get("prefix")
    public_name = prefix if isinstance(prefix, str) and prefix else name
    transport = {"streamable_http": "http"}.get(str(raw.get("transport")), raw.get("transport"))
    address = {"url": raw.get("url"), "headers": raw.get("headers"), "type": transport}
    program = {key: raw.get(key) for key in ("command", "args", "env", "cwd")}
    server = address if raw.get("url") else program
    entry = read_entry(public_name, server, placeholders=_NO_PLACEHOLDERS)
    if not entry.table:
        return entry
    extra: dict[str, Any] = {"compress": _limits(raw)}
    if raw.get("surfacing_enabled") is False:
        extra["surface"] = {"enabled": False}
    seconds = raw.get("call_timeout_seconds")
    if isinstance(seconds, int | float) and not isinstance(seconds, bool):
        extra["call_timeout_seconds"] = seconds
    return ServerEntry(public_name, {**entry.table, **{k: v for k, v in extra.items() if v}})


def _limits(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The proxy's limits as `compress.*` settings. `auto` and booleans are left out."""
    settings = {ours: raw.get(theirs) for theirs, ours in _LIMITS.items()}
    return {
        key: value
        for key, value in settings.items()
        if isinstance(value, int | float | str) and value not in ("auto", True, False)
    }
