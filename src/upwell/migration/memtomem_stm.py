"""The servers behind memtomem-stm's proxy, and its settings.

`stm_proxy.json` holds the servers and the limits for their results. Any setting can also be an
environment variable, `MEMTOMEM_STM_SECTION__KEY`, in the shell or in the proxy's entry in an
agent's configuration. Variables take precedence over `stm_proxy.json`. Minimum scores are left out,
because memtomem-stm scores on a different scale. Settings without an equivalent are left out too.

Source: memtomem-stm 0.6 (`config`, `proxy/config`, `surfacing/config`).
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from upwell.hosts import server_files
from upwell.hosts.installation import Installation
from upwell.hosts.memtomem import (
    CONFIG_PATH,
    proxied_servers,
    proxy_file,
    read_proxy,
    registered_environment,
)
from upwell.migration.base import ImportedServer, Item, LeftOut, Setting, StorePlace

PREFIX = "MEMTOMEM_STM_"
_KEYS = {
    "proxy.default_compression": "compress.strategy",
    "proxy.default_max_result_chars": "compress.max_result_chars",
    "proxy.min_result_retention": "compress.min_result_retention",
    "proxy.consumer_model": "agent.model",
    "proxy.cache.default_ttl_seconds": "cache.ttl_seconds",
    "proxy.extraction.llm.base_url": "llm.base_url",
    "proxy.extraction.llm.model": "llm.model",
    "surfacing.enabled": "surface.enabled",
    "surfacing.consumer_model": "agent.model",
    "surfacing.context_window_size": "agent.context_window",
    "surfacing.ltm_mcp_transport": "ltm.transport",
    "surfacing.ltm_mcp_command": "ltm.command",
    "surfacing.ltm_mcp_args": "ltm.args",
    "surfacing.ltm_mcp_url": "ltm.url",
    "surfacing.ltm_mcp_headers": "ltm.headers",
    "surfacing.max_results": "surface.tool_count",
    "surfacing.cooldown_seconds": "surface.cooldown_seconds",
    "surfacing.timeout_seconds": "surface.timeout_seconds",
    "surfacing.injection_mode": "surface.injection_mode",
    "surfacing.exclude_tools": "surface.exclude_tools",
    "surfacing.feedback_demotion_negative_threshold": (
        "surface.feedback_demotion_negative_threshold"
    ),
    "surfacing.max_surfacings_per_minute": "surface.rate_per_minute",
    "surfacing.circuit_max_failures": "surface.circuit_max_failures",
    "surfacing.circuit_reset_seconds": "surface.circuit_reset_seconds",
    "surfacing.auto_tune_enabled": "learn.auto_tune",
    "surfacing.min_response_chars": "surface.min_response_chars",
    "surfacing.max_injection_chars": "surface.max_injection_chars",
    "surfacing.preview_max_chars": "surface.preview_chars",
    "surfacing.dedup_ttl_seconds": "surface.dedup_ttl_seconds",
    "surfacing.query_retention_days": "surface.query_retention_days",
    "surfacing.persist_query_text": "surface.persist_query_text",
}
_TABLES = ("ltm_mcp_headers",)
"""Settings whose values are tables."""
_NOT_SETTINGS = ("proxy.upstream_servers", "proxy.enabled", "proxy.config_path")
OTHER_SCALE = "scores are on another scale here"
NO_COUNTERPART = "upwell has no such setting"


class MemtomemStm:
    name = "memtomem-stm"
    usual = "~/.memtomem/stm_proxy.json"

    def stores(self, place: StorePlace) -> list[Path]:
        path = proxy_file(_environment(place), place.user_folder)
        return [path] if path.is_file() else []

    def read(self, path: Path, place: StorePlace) -> Iterator[Item]:
        content = read_proxy(path / "stm_proxy.json" if path.is_dir() else path)
        for server in proxied_servers(content):
            if not server.entry.table:
                yield LeftOut(server.entry.left, server.entry.name)
                continue
            yield ImportedServer(server.entry.name, server.entry.table)
            for tool, limits in server.tools.items():
                pattern = f"{server.entry.name}__{tool}"
                for key, value in limits.items():
                    yield Setting(("tool", pattern, "compress", key), value, f"{tool}: {key}")
        if content.get("upstream_servers") and content.get("enabled") is not True:
            yield LeftOut("the proxy is switched off: `enabled` in its file", str(path))
        settings = dict(_flat(("proxy",), content)) | dict(_variables(_environment(place)))
        yield from (_setting(name, value) for name, value in settings.items())


def _environment(place: StorePlace) -> dict[str, str]:
    """The shell's environment, overridden by the variables that agents give the proxy."""
    user = Installation(user_folder=place.user_folder, environment=place.environment, command=())
    return {**place.environment, **registered_environment(server_files().values(), user)}


def _setting(name: str, value: Any) -> Item:
    if name.endswith("min_score"):
        return LeftOut(OTHER_SCALE, name)
    parts = name.split(".")
    if parts[:2] == ["surfacing", "context_tools"] and parts[-1] == "query_template":
        return Setting(("surface", "templates", ".".join(parts[2:-1])), value, name)
    if name not in _KEYS:
        return LeftOut(NO_COUNTERPART, name)
    return Setting(tuple(_KEYS[name].split(".")), value, name)


def _flat(path: tuple[str, ...], value: Any) -> Iterator[tuple[str, Any]]:
    name = ".".join(path)
    if name in _NOT_SETTINGS:
        return
    if isinstance(value, Mapping) and path[-1] not in _TABLES:
        for key, inner in value.items():
            yield from _flat((*path, str(key)), inner)
    elif value is not None:
        yield name, value


def _variables(environment: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for variable, value in environment.items():
        if variable.upper().startswith(PREFIX) and variable.upper() != CONFIG_PATH:
            path = tuple(variable[len(PREFIX) :].lower().split("__"))
            yield from _flat(path, _value(value))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"true": True, "false": False}.get(text.lower(), text)
