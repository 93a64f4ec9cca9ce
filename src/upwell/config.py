"""The configuration, which collects the options of all packages. A `Config` never changes; a
running gateway reads a new one when the file changes.

The sources are `config.toml` in upwell's home, environment variables such as
`UPWELL_SECTION__KEY`, and flags. A later source overrides an earlier one. No file in the working
directory is read, so a cloned repository cannot configure anything.
"""

import dataclasses
import fnmatch
import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from upwell.capture.options import CaptureOptions, LessonOptions
from upwell.compress.options import NOT_PER_TOOL as COMPRESS_NOT_PER_TOOL
from upwell.compress.options import CompressOptions
from upwell.gateway.options import CacheOptions, GatewayOptions, ServerOptions
from upwell.ground.context_windows import (
    AgentOptions,
    ResultTokens,
    result_tokens_in,
    size_of,
    window_in,
)
from upwell.ground.errors import ConfigError, UsageError
from upwell.ground.files import Home, default_home, read_regular_file
from upwell.ground.llm import EmbedOptions, LlmOptions
from upwell.ground.names import OWN_SERVER, check_server_name
from upwell.ground.pause import ProjectOptions
from upwell.ground.settings import checked, line_of, masked, unknown
from upwell.ground.text.lexicon import Lexicon, extended, shipped
from upwell.hook.options import HookOptions
from upwell.learn.options import LearnOptions
from upwell.memory.options import LtmOptions, MemoryOptions, NotesOptions, StoreOptions
from upwell.surface.options import NOT_PER_TOOL as SURFACE_NOT_PER_TOOL
from upwell.surface.options import (
    ContextOptions,
    IntentOptions,
    JudgeOptions,
    PipelineOptions,
    SurfaceOptions,
    scaled_to,
)
from upwell.tools.options import ToolsOptions
from upwell.usage.report import FREE, prices_of
from upwell.web.options import OidcOptions

SECTIONS: Mapping[str, type] = {
    "surface": SurfaceOptions,
    "intent": IntentOptions,
    "memory_context": ContextOptions,
    "memory": MemoryOptions,
    "store": StoreOptions,
    "oidc": OidcOptions,
    "stm": NotesOptions,
    "ltm": LtmOptions,
    "compress": CompressOptions,
    "gateway": GatewayOptions,
    "cache": CacheOptions,
    "agent": AgentOptions,
    "llm": LlmOptions,
    "embed": EmbedOptions,
    "learn": LearnOptions,
    "hook": HookOptions,
    "capture": CaptureOptions,
    "lessons": LessonOptions,
    "projects": ProjectOptions,
    "tools": ToolsOptions,
}
_NOT_PER_TOOL = {"surface": SURFACE_NOT_PER_TOOL, "compress": COMPRESS_NOT_PER_TOOL}
PER_TOOL = ("compress", "surface")
GONE = frozenset(
    """
    cache.max_bytes cache.ttl_seconds capture.accept compress.original_max_bytes
    compress.read_tokens gateway.drain_seconds gateway.lazy_tools_tokens gateway.list_wait_seconds
    gateway.max_in_flight gateway.max_line_bytes gateway.notice_seconds hook.cold_ms hook.enabled
    hook.idle_minutes hook.prompt_ms hook.tool_ms learn.implicit_signals lessons.models
    llm.input_price llm.output_price ltm.args ltm.arguments ltm.profile ltm.result ltm.tool
    memory.qmd_command memory.qmd_mode oidc.keys_url store.deletions_days store.secret
    surface.exclude_tools surface.judge_calls surface.session_max_bytes surface.tool_count
    surface.write_tools tools.hide
    """.split()
)
"""Keys of earlier versions. They are reported, but stop no command."""
INSTEAD = {
    "compress.read_tokens": 'set max_result_tokens below [tool."PATTERN".compress]',
    "hook.enabled": "delete it, and run `upwell off`",
    "learn.implicit_signals": "delete it, or set learn.auto_tune",
    "ltm.args": 'write command = ["PROGRAM", "ARGUMENT", …]',
    "memory.qmd_mode": 'write backend = "qmd vsearch" or "qmd query"',
    "surface.exclude_tools": 'set enabled = false below [tool."PATTERN".surface]',
    "surface.tool_count": "set surface.max_injection_chars or surface.max_count",
}
"""What to do about a key in `GONE`, unless deleting it is enough."""
HOOK_VARIABLES = frozenset(f"UPWELL_HOOK__{name}_MS" for name in ("PROMPT", "TOOL", "COLD"))
"""How long an agent's hook waits. The process that the agent runs reads them itself."""
MAX_TOOLS_CACHED = 512
DEFAULT = "default"
_PREFIX = "UPWELL_"


class Value(Struct, frozen=True):
    """A setting and its origin: "default", a file, an environment variable or "flag"."""

    value: Any
    origin: str


@dataclass(frozen=True, kw_only=True)
class Config:
    """The whole configuration. `values` contains only the settings that were set, keyed by dotted
    name. `overrides` maps a tool pattern or `server:NAME` to tables of settings.
    """

    home: Home
    surface: SurfaceOptions = field(default_factory=SurfaceOptions)
    intent: IntentOptions = field(default_factory=IntentOptions)
    memory_context: ContextOptions = field(default_factory=ContextOptions)
    memory: MemoryOptions = field(default_factory=MemoryOptions)
    store: StoreOptions = field(default_factory=StoreOptions)
    oidc: OidcOptions = field(default_factory=OidcOptions)
    stm: NotesOptions = field(default_factory=NotesOptions)
    ltm: LtmOptions = field(default_factory=LtmOptions)
    compress: CompressOptions = field(default_factory=CompressOptions)
    gateway: GatewayOptions = field(default_factory=GatewayOptions)
    cache: CacheOptions = field(default_factory=CacheOptions)
    agent: AgentOptions = field(default_factory=AgentOptions)
    llm: LlmOptions = field(default_factory=LlmOptions)
    embed: EmbedOptions = field(default_factory=EmbedOptions)
    learn: LearnOptions = field(default_factory=LearnOptions)
    lexicon: Lexicon = field(default_factory=shipped)
    hook: HookOptions = field(default_factory=HookOptions)
    capture: CaptureOptions = field(default_factory=CaptureOptions)
    lessons: LessonOptions = field(default_factory=LessonOptions)
    projects: ProjectOptions = field(default_factory=ProjectOptions)
    tools: ToolsOptions = field(default_factory=ToolsOptions)
    servers: tuple[ServerOptions, ...] = ()
    overrides: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def surfacing(self) -> PipelineOptions:
        """Collect the options of the surfacing pipeline."""
        return PipelineOptions(
            surface=self._scaled,
            intent=self.intent,
            memory_context=self.memory_context,
            lexicon=self.lexicon,
            is_excluded=self.projects.excludes,
            judge=JudgeOptions(prices=prices_of(self.llm.model) or FREE),
        )

    def shows_status(self) -> bool:
        """Return whether the tools for `stm.json` report their actions. They do so only if
        `STM_SHOW_STATUS` is exactly `TRUE` (seed 001, tests/NAMES.md).
        """
        return self.environment.get("STM_SHOW_STATUS") == "TRUE"

    def compress_for(self, server: str, tool: str) -> CompressOptions:
        """Return the `compress.*` settings for one tool. The tables of the server and of all
        matching tool patterns override the general settings.
        """
        return self._compress_options(server, tool)

    @cached_property
    def _compress_options(self) -> Callable[[str, str], CompressOptions]:
        # Cached, because every tool call reads these options several times.
        return lru_cache(maxsize=MAX_TOOLS_CACHED)(self._compress_beside)

    def _compress_beside(self, server: str, tool: str) -> CompressOptions:
        overriding = self._overriding("compress", server, f"{server}__{tool}")
        return dataclasses.replace(self.compress, **overriding) if overriding else self.compress

    def result_tokens(self) -> ResultTokens:
        """Return the default budgets of a result, which depend on the context window."""
        return result_tokens_in(window_in(self.agent))

    def surface_of(self, tool: str | None, window: int | None = None) -> SurfaceOptions:
        """Return the `surface.*` settings for one tool (`server__tool`, or the agent's own name for
        the tool), or for the user's message if `tool` is None. `window` is the size of the agent's
        context window in tokens, if a hook event states it.
        """
        return self._surface_options(tool, window)

    @cached_property
    def _surface_options(self) -> Callable[[str | None, int | None], SurfaceOptions]:
        # Cached, because every tool call reads these options several times.
        return lru_cache(maxsize=MAX_TOOLS_CACHED)(self._surface_beside)

    def _surface_beside(self, tool: str | None, window: int | None) -> SurfaceOptions:
        surface = self._scaled if window is None else self._scaled_to(window)
        server, separator, _ = (tool or "").partition("__")
        overriding = self._overriding("surface", server if separator else "", tool) if tool else {}
        if not overriding:
            return surface
        weights = {**surface.namespace_weights, **overriding.get("namespace_weights", {})}
        return dataclasses.replace(surface, **{**overriding, "namespace_weights": weights})

    def shown(self) -> dict[str, Value]:
        """Return every setting with its origin. Secrets are masked."""
        settings = {
            f"{section}.{name}": getattr(getattr(self, section), name)
            for section, kind in SECTIONS.items()
            for name in _fields(kind)
        }
        origins = {key: entry.origin for key, entry in self.values.items()}
        shown = {key: Value(value, origins.get(key, DEFAULT)) for key, value in settings.items()}
        shown |= {key: entry for key, entry in self.values.items() if key not in settings}
        return {key: Value(masked(key, entry.value), entry.origin) for key, entry in shown.items()}

    @cached_property
    def _scaled(self) -> SurfaceOptions:
        """The `surface.*` settings. Sizes that the user did not set are scaled to the agent's
        context window."""
        return self._scaled_to(window_in(self.agent))

    def _scaled_to(self, window: int | None) -> SurfaceOptions:
        scaled: dict[str, Any] = {
            name: value
            for name, value in scaled_to(size_of(window)).items()
            if f"surface.{name}" not in self.values
        }
        return dataclasses.replace(self.surface, **scaled)

    def _overriding(self, section: str, server: str, name: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for pattern, tables in self.overrides.items():
            if pattern == f"server:{server}" or fnmatch.fnmatchcase(name, pattern):
                values.update(tables.get(section, {}))
        return values


def is_gone(key: str) -> bool:
    """Return whether `key` is in `GONE`, or sets one of these for a server or a tool."""
    last = ".".join(key.split(".")[-2:])
    return key in GONE or (last in GONE and last.partition(".")[0] in PER_TOOL)


def load(
    home: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Read a home's configuration and lexicon. `flags` maps dotted keys to values.

    Raises:
        ConfigError: a setting or a file is invalid. Only the first mistake is reported.
    """
    config, mistakes = read(home, flags, environment)
    for mistake in mistakes:
        if not is_gone(mistake.key):
            raise mistake
    return config


def read(
    home: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Config, list[ConfigError]]:
    """Like `load()`, but return all mistakes instead of raising the first one. The configuration
    omits invalid settings."""
    environment = dict(os.environ if environment is None else environment)
    files = Home((home or default_home()).absolute())
    reader = _Reading(files.config_file)
    with reader.mistakes_noted():
        reader.take_document(_read_file(files.config_file))
    reader.take_environment(environment)
    reader.take_flags(flags or {})
    lexicon = shipped()
    with reader.mistakes_noted():
        lexicon = extended(files.lexicon_file)
    mistakes = [_with_line(mistake, files.config_file) for mistake in reader.mistakes]
    return reader.config(files, lexicon, environment), mistakes


def read_valid(
    home: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Config, list[ConfigError]]:
    """Like `read()`, for a process that must start despite mistakes.

    Raises:
        ConfigError: the file cannot be read at all, so none of its settings are known.
    """
    config, mistakes = read(home, flags, environment)
    for mistake in mistakes:
        if not mistake.key and mistake.origin == str(config.home.config_file):
            raise mistake
    return config, mistakes


class _Reading:
    def __init__(self, config_file: Path) -> None:
        self.mistakes: list[ConfigError] = []
        self._origin = str(config_file)
        self._settings: dict[str, dict[str, Value]] = {section: {} for section in SECTIONS}
        self._servers: list[ServerOptions] = []
        self._overrides: dict[str, Mapping[str, Mapping[str, Any]]] = {}
        self._flat: dict[str, Value] = {}

    @contextmanager
    def mistakes_noted(self) -> Iterator[None]:
        """Record a `ConfigError` raised in the block, and continue after the block."""
        try:
            yield
        except ConfigError as mistake:
            self.mistakes.append(mistake)

    def take_document(self, document: Mapping[str, Any]) -> None:
        for section, table in document.items():
            with self.mistakes_noted():
                if section == "server":
                    self._take_servers(_table(section, table, self._origin))
                elif section == "tool":
                    self._take_tools(_table(section, table, self._origin))
                else:
                    self._take_section(section, table, self._origin)

    def take_environment(self, environment: Mapping[str, str]) -> None:
        for variable, text in sorted(environment.items()):
            if variable in HOOK_VARIABLES:
                continue
            if variable.startswith(_PREFIX) and "__" in variable:
                section, _, name = variable.removeprefix(_PREFIX).lower().partition("__")
                with self.mistakes_noted():
                    if section in ("server", "tool"):
                        raise _only_in_file(section, variable)
                    self._take_section(section, {name: _from_text(text)}, variable)

    def take_flags(self, flags: Mapping[str, Any]) -> None:
        for key, value in flags.items():
            section, _, name = key.partition(".")
            with self.mistakes_noted():
                self._take_section(section, {name: value}, "flag")

    def config(self, home: Home, lexicon: Lexicon, environment: Mapping[str, str]) -> Config:
        options = {
            section: SECTIONS[section](**{name: entry.value for name, entry in table.items()})
            for section, table in self._settings.items()
        }
        for section, table in self._settings.items():
            self._flat.update({f"{section}.{name}": entry for name, entry in table.items()})
        return Config(
            home=home,
            lexicon=lexicon,
            servers=tuple(self._servers),
            overrides=self._overrides,
            values=self._flat,
            environment=environment,
            **options,
        )

    def _take_section(self, section: str, table: Any, origin: str) -> None:
        if section not in SECTIONS:
            raise unknown(section, section, [*SECTIONS, "server", "tool"], origin)
        kind = SECTIONS[section]
        for name, value in _table(section, table, origin).items():
            with self.mistakes_noted():
                if f"{section}.{name}" in GONE:
                    raise _without_effect(f"{section}.{name}", origin)
                if name in SECTIONS and name not in _fields(kind) and isinstance(value, Mapping):
                    raise _misplaced(section, name, value, origin)
                setting = checked(kind, f"{section}.{name}", name, value, origin, _fields(kind))
                self._settings[section][name] = Value(setting, origin)

    def _take_servers(self, servers: Mapping[str, Any]) -> None:
        for name, value in servers.items():
            with self.mistakes_noted():
                key = f"server.{name}"
                entry = _table(key, value, self._origin)
                self._overrides[f"server:{name}"] = self._per_tool(
                    key, {section: entry[section] for section in PER_TOOL if section in entry}
                )
                mistakes = len(self.mistakes)
                server = self._server(key, name, entry)
                # A server with a mistake is left out completely. Without the invalid setting, its
                # entry could describe another server, or start one that the user has disabled.
                if len(self.mistakes) == mistakes:
                    self._servers.append(server)
                self._flat.update(_flat(key, entry, self._origin))

    def _take_tools(self, tools: Mapping[str, Any]) -> None:
        for pattern, value in tools.items():
            with self.mistakes_noted():
                key = f"tool.{pattern}"
                entry = _table(key, value, self._origin)
                self._overrides[pattern] = self._per_tool(key, entry)
                self._flat.update(_flat(key, entry, self._origin))

    def _server(self, key: str, name: str, entry: Mapping[str, Any]) -> ServerOptions:
        try:
            check_server_name(name)
        except UsageError as error:
            message = f"{error.message}, in {self._origin}"
            raise ConfigError(message, key=key, origin=self._origin) from error
        known = [option for option in _fields(ServerOptions) if option != "name"]
        settings: dict[str, Any] = {}
        mistakes = len(self.mistakes)
        for option, value in entry.items():
            if option not in PER_TOOL:
                with self.mistakes_noted():
                    settings[option] = checked(
                        ServerOptions, f"{key}.{option}", option, value, self._origin, known
                    )
        if len(self.mistakes) == mistakes and bool(entry.get("command")) == bool(entry.get("url")):
            fault = "both a command and a url" if entry.get("url") else "no command"
            raise ConfigError(
                f"[{key}] in {self._origin} has {fault}",
                key=f"{key}.command",
                origin=self._origin,
                hint=f"upwell add {name} -- CMD ARGS…, or upwell add {name} --url URL",
            )
        return ServerOptions(name=name, **settings)

    def _per_tool(self, key: str, entry: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
        overrides: dict[str, dict[str, Any]] = {}
        for section, table in entry.items():
            with self.mistakes_noted():
                if section not in PER_TOOL:
                    raise unknown(f"{key}.{section}", section, list(PER_TOOL), self._origin)
                overrides[section] = {}
                for name, value in _table(f"{key}.{section}", table, self._origin).items():
                    with self.mistakes_noted():
                        setting = self._tool_setting(key, section, name, value)
                        overrides[section][name] = setting
        return overrides

    def _tool_setting(self, key: str, section: str, name: str, value: Any) -> Any:
        kind, full_key = SECTIONS[section], f"{key}.{section}.{name}"
        if f"{section}.{name}" in GONE:
            raise _without_effect(full_key, self._origin)
        setting = checked(kind, full_key, name, value, self._origin, _fields(kind))
        hint = ""
        if section == "surface" and key.startswith(f"tool.{OWN_SERVER}__"):
            fault = "has no effect: no memory is added to the results of upwell's own tools"
            hint = f"[surface] {name} = … also applies to memory_context"
        elif name in _NOT_PER_TOOL.get(section, ()):
            fault = "cannot differ by tool"
            hint = f"move it to [{section}]: {name} = …"
        if hint:
            message = f"{full_key} in {self._origin} {fault}"
            raise ConfigError(message, key=full_key, origin=self._origin, hint=hint)
        return setting


def _with_line(error: ConfigError, path: Path) -> ConfigError:
    """Put the number of the line that sets the key into the message. If no line sets it, use the
    line of the table heading."""
    if not error.key or error.origin != str(path):
        return error
    text = read_regular_file(path).decode("utf-8")
    key = error.key
    while key and (line := line_of(text, key)) is None:
        key = key.rpartition(".")[0]
    message = error.message.replace(error.origin, f"{path}:{line}", 1) if key else error.message
    return ConfigError(message, key=error.key, origin=error.origin, hint=error.hint)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_regular_file(path).decode("utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is not TOML: {error}", origin=str(path), hint="fix that line"
        ) from error
    except RecursionError as error:
        raise ConfigError(
            f"{path} cannot be read: it is nested too deeply",
            origin=str(path),
            hint="use fewer levels of tables and lists",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}",
            origin=str(path),
            hint="check its owner and permissions, or set UPWELL_HOME to a folder of your own",
        ) from error


def _table(key: str, value: Any, origin: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{key} in {origin} must be a table", key=key, origin=origin, hint=f"write [{key}]"
        )
    return value


def _misplaced(section: str, name: str, table: Mapping[str, Any], origin: str) -> ConfigError:
    """Return the error for a dotted key such as `hook.port` below a table heading. In TOML, such a
    key belongs to that table.
    """
    key = f"{section}.{name}"
    line = f"`{next(iter(table), 'KEY')} = …`"
    here, elsewhere = f"below [{section}], write {line}", f"move it below [{name}], as {line}"
    return ConfigError(
        f"unknown key {key!r} in {origin}",
        key=key,
        origin=origin,
        hint=here if name == section else elsewhere,
    )


def _without_effect(key: str, origin: str) -> ConfigError:
    message = f"{key} in {origin} no longer has an effect"
    hint = INSTEAD.get(".".join(key.split(".")[-2:]), "delete it")
    return ConfigError(message, key=key, origin=origin, hint=hint)


def _only_in_file(section: str, variable: str) -> ConfigError:
    hint = f"remove the variable, and write [{section}.NAME] in the file"
    if section == "server":
        hint += '; its env and headers may contain "${VARIABLE}"'
    return ConfigError(
        f"{variable} has no effect: config.toml alone sets {section}s",
        key=section,
        origin=variable,
        hint=hint,
    )


def _from_text(text: str) -> Any:
    """Read a variable's value: a list or a table is written as JSON, anything else as text."""
    if text[:1] in "[{":
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _fields(kind: type) -> list[str]:
    return [entry.name for entry in dataclasses.fields(kind)]


def _flat(prefix: str, table: Mapping[str, Any], origin: str) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name, value in table.items():
        key = f"{prefix}.{name}"
        if isinstance(value, Mapping) and name in PER_TOOL:
            values.update(_flat(key, value, origin))
        else:
            values[key] = Value(value, origin)
    return values
