"""Configuration: composed from each package's options, read once, and dead data afterwards.

`config.toml` in upwell's home, then `UPWELL_SECTION__KEY` from the environment, then flags; the
later wins, and every value remembers where it came from. Nothing below this file reads the
environment, and nothing is read from a working directory: a cloned repository configures nothing.
"""

import dataclasses
import fnmatch
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from upwell.compress.base import Options as CompressOptions
from upwell.gateway.options import CacheOptions, GatewayOptions, ServerOptions
from upwell.ground.embed import EmbedOptions
from upwell.ground.endpoint import Endpoint
from upwell.ground.errors import ConfigError, UsageError
from upwell.ground.files import read_whole
from upwell.ground.home import Home, default_home
from upwell.ground.names import check_server_name
from upwell.ground.settings import checked, masked, unknown
from upwell.ground.text.lexicon import Lexicon, extended, shipped
from upwell.ground.wanted import line_of
from upwell.ground.windows import RESULT_TOKENS, AgentOptions, size_of, window_in
from upwell.hook.options import HookOptions
from upwell.learn.ratios import LearnOptions
from upwell.memory.options import LtmOptions, MemoryOptions, NotesOptions
from upwell.surface.options import (
    ContextOptions,
    IntentOptions,
    Options,
    SurfaceOptions,
    scaled_to,
)

SECTIONS: Mapping[str, type] = {
    "surface": SurfaceOptions,
    "intent": IntentOptions,
    "memory_context": ContextOptions,
    "memory": MemoryOptions,
    "stm": NotesOptions,
    "ltm": LtmOptions,
    "compress": CompressOptions,
    "gateway": GatewayOptions,
    "cache": CacheOptions,
    "agent": AgentOptions,
    "llm": Endpoint,
    "embed": EmbedOptions,
    "learn": LearnOptions,
    "hook": HookOptions,
}
PER_TOOL = ("compress", "surface")
DEFAULT = "default"
_PREFIX = "UPWELL_"


@dataclass(frozen=True, slots=True)
class Value:
    """A setting and where it came from: `default`, a file, a variable, or `flag`."""

    value: Any
    origin: str


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that was configured. `values` are the settings that are not defaults."""

    home: Home
    surface: SurfaceOptions = field(default_factory=SurfaceOptions)
    intent: IntentOptions = field(default_factory=IntentOptions)
    memory_context: ContextOptions = field(default_factory=ContextOptions)
    memory: MemoryOptions = field(default_factory=MemoryOptions)
    stm: NotesOptions = field(default_factory=NotesOptions)
    ltm: LtmOptions = field(default_factory=LtmOptions)
    compress: CompressOptions = field(default_factory=CompressOptions)
    gateway: GatewayOptions = field(default_factory=GatewayOptions)
    cache: CacheOptions = field(default_factory=CacheOptions)
    agent: AgentOptions = field(default_factory=AgentOptions)
    llm: Endpoint = field(default_factory=Endpoint)
    embed: EmbedOptions = field(default_factory=EmbedOptions)
    learn: LearnOptions = field(default_factory=LearnOptions)
    lexicon: Lexicon = field(default_factory=shipped)
    hook: HookOptions = field(default_factory=HookOptions)
    servers: tuple[ServerOptions, ...] = ()
    overrides: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def surfacing(self) -> Options:
        """What the surfacing pipeline obeys."""
        return Options(
            surface=self._scaled,
            intent=self.intent,
            memory_context=self.memory_context,
            lexicon=self.lexicon,
        )

    def shows_status(self) -> bool:
        """Do the tools of `stm.json` say what they did? Exactly `TRUE` says yes (seed 001)."""
        return self.environment.get("STM_SHOW_STATUS") == "TRUE"

    def compress_for(self, server: str, tool: str) -> CompressOptions:
        """`compress.*` for one tool: its server's table, then every pattern that fits its name."""
        overriding = self._overriding("compress", server, f"{server}__{tool}")
        return dataclasses.replace(self.compress, **overriding) if overriding else self.compress

    def result_tokens(self) -> int:
        """Tokens of a response where nothing else is configured, by the agent's window."""
        return RESULT_TOKENS[size_of(window_in(self.agent))]

    def surface_of(self, tool: str | None, window: int | None = None) -> SurfaceOptions:
        """`surface.*` beside one tool: `server__tool`, or an agent's own as it calls it; None for
        a message. `window` is the agent's in tokens, where its cue says so."""
        surface = self._scaled if window is None else self._scaled_to(window)
        server, separator, _ = (tool or "").partition("__")
        overriding = self._overriding("surface", server if separator else "", tool) if tool else {}
        if not overriding:
            return surface
        weights = {**surface.namespace_weights, **overriding.get("namespace_weights", {})}
        return dataclasses.replace(surface, **{**overriding, "namespace_weights": weights})

    def shown(self) -> dict[str, Value]:
        """Every setting with its origin, secrets masked."""
        held = {
            f"{section}.{name}": getattr(getattr(self, section), name)
            for section, kind in SECTIONS.items()
            for name in _fields(kind)
        }
        origins = {key: entry.origin for key, entry in self.values.items()}
        shown = {key: Value(value, origins.get(key, DEFAULT)) for key, value in held.items()}
        shown |= {key: entry for key, entry in self.values.items() if key not in held}
        return {key: Value(masked(key, entry.value), entry.origin) for key, entry in shown.items()}

    @cached_property
    def _scaled(self) -> SurfaceOptions:
        """`surface.*` with sizes by the agent's window, where the user set none."""
        return self._scaled_to(window_in(self.agent))

    def _scaled_to(self, window: int | None) -> SurfaceOptions:
        scaled: dict[str, Any] = {
            name: value
            for name, value in scaled_to(size_of(window)).items()
            if f"surface.{name}" not in self.values
        }
        return dataclasses.replace(self.surface, **scaled)

    def _overriding(self, section: str, server: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for pattern, tables in self.overrides.items():
            if pattern == f"server:{server}" or fnmatch.fnmatchcase(name, pattern):
                found.update(tables.get(section, {}))
        return found


def load(
    home: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Read the configuration of a home, and its lexicon.

    `flags` are dotted keys. Raises ConfigError naming the key, where it stands, and the nearest
    known one.
    """
    environment = dict(os.environ if environment is None else environment)
    files = Home((home or default_home()).absolute())
    try:
        return _composed(files, flags or {}, environment)
    except ConfigError as error:
        raise _with_line(error, files.config_file) from error


def _composed(files: Home, flags: Mapping[str, Any], environment: Mapping[str, str]) -> Config:
    document = _read_file(files.config_file)
    origin = str(files.config_file)
    settings: dict[str, dict[str, Value]] = {section: {} for section in SECTIONS}
    servers: list[ServerOptions] = []
    overrides: dict[str, Mapping[str, Mapping[str, Any]]] = {}
    values: dict[str, Value] = {}
    for section, table in document.items():
        if section == "server":
            for name, entry in _tables(section, table, origin):
                server, tables = _server(name, entry, origin)
                servers.append(server)
                overrides[f"server:{name}"] = tables
                values.update(_flat(f"server.{name}", entry, origin))
        elif section == "tool":
            for pattern, entry in _tables(section, table, origin):
                overrides[pattern] = _per_tool(f"tool.{pattern}", entry, origin)
                values.update(_flat(f"tool.{pattern}", entry, origin))
        else:
            _take(settings, section, table, origin)
    _take_environment(settings, environment)
    for key, value in flags.items():
        section, _, name = key.partition(".")
        _take(settings, section, {name: value}, "flag")
    options = {
        section: SECTIONS[section](**{name: entry.value for name, entry in table.items()})
        for section, table in settings.items()
    }
    for section, table in settings.items():
        values.update({f"{section}.{name}": entry for name, entry in table.items()})
    return Config(
        home=files,
        lexicon=extended(files.lexicon_file),
        servers=tuple(servers),
        overrides=overrides,
        values=values,
        environment=environment,
        **options,
    )


def _with_line(error: ConfigError, path: Path) -> ConfigError:
    """The same fault with the line of the file on which its key stands, or else its table."""
    if not error.key or error.origin != str(path):
        return error
    text = read_whole(path).decode("utf-8")
    key = error.key
    while key and (line := line_of(text, key)) is None:
        key = key.rpartition(".")[0]
    message = error.message.replace(error.origin, f"{path}:{line}", 1) if key else error.message
    return ConfigError(message, key=error.key, origin=error.origin, hint=error.hint)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_whole(path).decode("utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is not TOML: {error}", origin=str(path), hint="mend that line"
        ) from error
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deeply to be read", origin=str(path)) from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}",
            origin=str(path),
            hint="check its owner and permissions, or set UPWELL_HOME to a folder of your own",
        ) from error


def _tables(section: str, table: Any, origin: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, entry in _table(section, table, origin).items():
        yield name, _table(f"{section}.{name}", entry, origin)


def _table(key: str, value: Any, origin: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{key} in {origin} must be a table", key=key, origin=origin, hint=f"write [{key}]"
        )
    return value


def _server(
    name: str, entry: Mapping[str, Any], origin: str
) -> tuple[ServerOptions, Mapping[str, Mapping[str, Any]]]:
    key = f"server.{name}"
    try:
        check_server_name(name)
    except UsageError as error:
        raise ConfigError(f"{error.message}, in {origin}", key=key, origin=origin) from error
    own = {field: value for field, value in entry.items() if field not in PER_TOOL}
    known = [field for field in _fields(ServerOptions) if field != "name"]
    taken = {
        field: checked(ServerOptions, f"{key}.{field}", field, value, origin, known)
        for field, value in own.items()
    }
    if bool(taken.get("command")) == bool(taken.get("url")):
        fault = "both a command and a url" if taken.get("url") else "no command"
        raise ConfigError(
            f"[{key}] in {origin} has {fault}",
            key=f"{key}.command",
            origin=origin,
            hint=f"upwell add {name} -- CMD ARGS…, or upwell add {name} --url URL",
        )
    rest = {section: table for section, table in entry.items() if section in PER_TOOL}
    return ServerOptions(name=name, **taken), _per_tool(key, rest, origin)


def _per_tool(key: str, entry: Mapping[str, Any], origin: str) -> Mapping[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for section, table in entry.items():
        if section not in PER_TOOL:
            raise unknown(f"{key}.{section}", section, list(PER_TOOL), origin)
        kind = SECTIONS[section]
        found[section] = {
            name: checked(kind, f"{key}.{section}.{name}", name, value, origin, _fields(kind))
            for name, value in _table(f"{key}.{section}", table, origin).items()
        }
    return found


def _take(settings: dict[str, dict[str, Value]], section: str, table: Any, origin: str) -> None:
    if section not in SECTIONS:
        raise unknown(section, section, [*SECTIONS, "server", "tool"], origin)
    kind = SECTIONS[section]
    for name, value in _table(section, table, origin).items():
        taken = checked(kind, f"{section}.{name}", name, value, origin, _fields(kind))
        settings[section][name] = Value(taken, origin)


def _take_environment(
    settings: dict[str, dict[str, Value]], environment: Mapping[str, str]
) -> None:
    for variable, text in sorted(environment.items()):
        if not variable.startswith(_PREFIX) or "__" not in variable:
            continue
        section, _, name = variable.removeprefix(_PREFIX).lower().partition("__")
        _take(settings, section, {name: _from_text(text)}, variable)


def _from_text(text: str) -> Any:
    """A variable's text: JSON for lists and tables, else as it is (numbers are read by type)."""
    if text[:1] in "[{":
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _fields(kind: type) -> list[str]:
    return [entry.name for entry in dataclasses.fields(kind)]


def _flat(prefix: str, table: Mapping[str, Any], origin: str) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name, value in table.items():
        key = f"{prefix}.{name}"
        if isinstance(value, Mapping) and name in PER_TOOL:
            found.update(_flat(key, value, origin))
        else:
            found[key] = Value(value, origin)
    return found
