"""An agent host's configuration file: where it is, and how our entries get in and out of it."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from upwell.ground.errors import ConfigError
from upwell.hosts.jsonc import Node, parse, with_child, without_child

CLIENT = "upwell/hook/client.py"
COMMAND = "upwell"
TOKEN_VARIABLE = "UPWELL_TOKEN"
_OUR_URL = re.compile(r"http://127\.0\.0\.1:\d+/hook/(?:claude|copilot/postToolUse(?:Failure)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """Where the daemon answers hooks that are HTTP requests, on 127.0.0.1, and its token."""

    port: int
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Whose files: the user's home folder and environment, the command of the hook (without the
    host's name), and the socket of the daemon. `home` is upwell's where it is not in its usual
    place, and then part of the command; else empty. `http`: the hooks that a host can make HTTP
    requests are to be that."""

    folder: Path
    environment: Mapping[str, str]
    command: tuple[str, ...]
    socket: str = ""
    home: str = ""
    http: Http | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The command of the hook, up to the host's name."""
        return (*self.command, "--home", self.home) if self.home else self.command

    def base(self, variable: str, default: str) -> Path:
        """The host's folder: what its variable says, else its usual place."""
        named = self.environment.get(variable, "")
        return Path(named).expanduser() if named else self.folder / default


class HostFile(Protocol):
    """One host's file."""

    @property
    def name(self) -> str: ...

    @property
    def todo(self) -> str:
        """What the user still has to do after an installation; "" for nothing."""
        ...

    def path(self, where: Where) -> Path: ...

    def present(self, where: Where) -> bool:
        """Is the host to be found on this machine?"""
        ...

    def added(self, text: str, where: Where) -> str:
        """`text` ("" for no file) with exactly our entries of now.

        Raises:
            ConfigError: the file cannot be read as what it should be.
        """
        ...

    def removed(self, text: str, olds: Sequence[str] = ()) -> str:
        """`text` without our entries; "" when nothing but ours was in it. `olds` are the copies of
        before us, for what we moved out of the file and must put back."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonHooks:
    """A JSON file whose `hooks` table has a list for each event.

    `events` give the matcher of each event ("" for none). `nested`: the list holds groups with a
    matcher and handlers of their own (Claude Code and who followed it), else the handlers
    themselves. `timeout_key` and `timeout` are in the host's unit. `exec_form`: program and
    arguments apart. `label` is the name that the host shows for our handlers, where it shows one.
    `head` are keys that the file must have. `over_http` are the events that may be
    HTTP requests; `by_variable`: the host puts the token into their header from the environment.
    """

    name: str
    variable: str
    folder: str
    file: str
    events: Mapping[str, str]
    nested: bool = True
    timeout_key: str = "timeout"
    timeout: int = 10
    exec_form: bool = False
    named_event: bool = False
    typed: bool = True
    label: str = ""
    head: Mapping[str, Any] = field(default_factory=dict)
    over_http: frozenset[str] = frozenset()
    by_variable: bool = False
    todo: str = ""

    def path(self, where: Where) -> Path:
        return where.base(self.variable, self.folder) / self.file

    def present(self, where: Where) -> bool:
        base = where.base(self.variable, self.folder)
        return (base if self.folder else self.path(where).parent).is_dir()

    def added(self, text: str, where: Where) -> str:
        wanted = {event: self._entry(event, where) for event in self.events}
        if not text.strip():
            hooks = {event: [entry] for event, entry in wanted.items()}
            return _dumped({**self.head, "hooks": hooks})
        root = self._checked(text)
        for key, value in self.head.items():
            if key not in root.value:
                text = with_child(text, (), value, key)
        if "hooks" not in root.value:
            return with_child(text, (), {k: [v] for k, v in wanted.items()}, "hooks")
        if self._entries(parse(text).value["hooks"]) == {k: [v] for k, v in wanted.items()}:
            return text
        text = self._without(text, keep_empty=True)
        for event, entry in wanted.items():
            if event in parse(text).value["hooks"]:
                text = with_child(text, ("hooks", event), entry)
            else:
                text = with_child(text, ("hooks",), [entry], event)
        return text

    def removed(self, text: str, olds: Sequence[str] = ()) -> str:
        if not text.strip():
            return ""
        self._checked(text)
        left = self._without(text, keep_empty=False)
        value = parse(left).value
        return "" if {k: v for k, v in value.items() if k not in self.head} == {} else left

    def _entry(self, event: str, where: Where) -> dict[str, Any]:
        """One entry of an event's list."""
        http = where.http if event in self.over_http else None
        handler = self._request(event, http) if http else self._command(event, where)
        handler[self.timeout_key] = self.timeout
        matcher = {"matcher": self.events[event]} if self.events[event] else {}
        return {**matcher, "hooks": [handler]} if self.nested else {**handler, **matcher}

    def _command(self, event: str, where: Where) -> dict[str, Any]:
        words = (*where.words, self.name, *((event,) if self.named_event else ()))
        kind = {"type": "command"} if self.typed else {}
        kind |= {"name": self.label} if self.label else {}
        if self.exec_form:
            return {**kind, "exec": words[0], "args": list(words[1:])}
        return {**kind, "command": shlex.join(words) + " || true"}

    def _request(self, event: str, http: Http) -> dict[str, Any]:
        named = f"/{event}" if self.named_event else ""
        url = f"http://127.0.0.1:{http.port}/hook/{self.name}{named}"
        token = f"${TOKEN_VARIABLE}" if self.by_variable else http.token
        allowed = {"allowedEnvVars": [TOKEN_VARIABLE]} if self.by_variable else {}
        headers = {"Authorization": f"Bearer {token}"}
        return {"type": "http", "url": url, "headers": headers, **allowed}

    def _checked(self, text: str) -> Node:
        root = parse(text)
        hooks = root.value.get("hooks", {}) if isinstance(root.value, dict) else None
        fine = isinstance(hooks, dict) and all(isinstance(entry, list) for entry in hooks.values())
        if not fine:
            raise ConfigError(
                f"the hooks of {self.name} are not the table they should be",
                hint="mend the file first; it was not touched",
            )
        return root

    def _entries(self, hooks: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Our entries by event, foreign ones left out."""
        found = {
            event: [entry for entry in entries if self._has_ours(entry)]
            for event, entries in hooks.items()
        }
        return {event: entries for event, entries in found.items() if entries}

    def _has_ours(self, entry: Any) -> bool:
        if not isinstance(entry, dict):
            return False
        handlers = entry.get("hooks", []) if self.nested else [entry]
        return isinstance(handlers, list) and any(is_ours(handler) for handler in handlers)

    def _without(self, text: str, *, keep_empty: bool) -> str:
        """`text` without our handlers, and without the groups and lists that held nothing else."""
        while (place := self._first_of_ours(parse(text))) is not None:
            event, group, handler = place
            hooks = parse(text).value["hooks"]
            if self.nested and len(hooks[event][group]["hooks"]) > 1:
                text = without_child(text, ("hooks", event, str(group), "hooks"), handler)
                continue
            text = without_child(text, ("hooks", event), group)
            if not keep_empty and not parse(text).value["hooks"][event]:
                keys = _at_hooks(parse(text)).keys
                text = without_child(text, ("hooks",), keys.index(event))
        if not keep_empty and parse(text).value.get("hooks") == {}:
            text = without_child(text, (), parse(text).keys.index("hooks"))
        return text

    def _first_of_ours(self, root: Node) -> tuple[str, int, int] | None:
        for event, entries in root.value.get("hooks", {}).items():
            for group, entry in enumerate(entries):
                if not self._has_ours(entry):
                    continue
                handlers = entry["hooks"] if self.nested else [entry]
                return event, group, [is_ours(handler) for handler in handlers].index(True)
        return None


def is_ours(handler: Any) -> bool:
    """Does this handler run our hook? By its words, exactly: the client's file, or the program
    called `upwell` with `hook`; or by the address that it posts to."""
    if not isinstance(handler, dict):
        return False
    if handler.get("type") == "http":
        return isinstance(url := handler.get("url"), str) and bool(_OUR_URL.fullmatch(url))
    command, args = handler.get("command"), handler.get("args")
    if isinstance(handler.get("exec"), str) and isinstance(args, list):
        words = [handler["exec"], *(str(arg) for arg in args)]
    elif isinstance(command, str):
        try:
            words = shlex.split(command)
        except ValueError:
            return False
    else:
        return False
    if len(words) > 3 and words[1:3] == ["-I", "-S"]:
        return str(words[3]).endswith("/" + CLIENT)
    return len(words) > 1 and Path(words[0]).name == COMMAND and words[1] == "hook"


def _at_hooks(root: Node) -> Node:
    node = root.under("hooks")
    assert node is not None
    return node


def _dumped(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
