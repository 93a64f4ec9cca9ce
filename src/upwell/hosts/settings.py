"""Adds our entries to the `hooks` table of an agent's JSON file, and removes them."""

import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from upwell.ground.errors import ConfigError
from upwell.ground.files import LAUNCHER
from upwell.hosts.events import EventKind, HostEvents
from upwell.hosts.installation import HttpAddress, Installation
from upwell.hosts.jsonc import JsoncNode, parse, with_child, without_child

CLIENT = "upwell/hook/client.py"
COMMAND = "upwell"
TOKEN_VARIABLE = "UPWELL_TOKEN"
_URL = r"http://127\.0\.0\.1:\d+/hook/"


class JsonHooks(Struct, frozen=True, kw_only=True):
    """A JSON file whose `hooks` table holds a list for each event.

    - `file` is relative to `folder`, the host's folder. `variable`, if set, is the environment
      variable that can name another folder. `trace` is a file in the user's home that also shows
      that the host is in use.
    - `patterns` are the matchers of those `events` that have one. Events before a tool are
      installed only if the user has a guard (a rule that blocks tool calls), those in `unused`
      never.
    - `nested`: the list of an event holds groups, each with a matcher and a list of handlers
      (Claude Code and compatible hosts). Otherwise it holds the handlers themselves.
    - `exec_form`: a handler has separate fields for its program and its arguments. `names_event`:
      the event is one of the arguments.
    - `timeout` is in the host's own unit.
    - `label` is the name under which the host lists our handlers.
    - `required` are top-level keys that the file must have.
    - With `http_setup`, handlers of results may be HTTP requests. `token_from_environment`: the
      host reads their token from the environment.
    """

    host: str
    folder: str
    file: str
    events: HostEvents
    patterns: Mapping[str, str] = field(default_factory=dict)
    unused: Collection[str] = ()
    variable: str = ""
    trace: str = ""
    nested: bool = True
    timeout_key: str = "timeout"
    timeout: int = 10
    exec_form: bool = False
    names_event: bool = False
    typed: bool = True
    label: str = ""
    required: Mapping[str, Any] = field(default_factory=dict)
    token_from_environment: bool = False
    http_setup: str = ""
    next_step: str = ""

    @property
    def matchers(self) -> Mapping[str, str]:
        """The matcher of each event that is always installed, or "" for none."""
        return {
            event: self.patterns.get(event, "")
            for event, kind in self.events.kinds.items()
            if kind is not EventKind.BEFORE and event not in self.unused
        }

    @property
    def guard_matchers(self) -> Mapping[str, str]:
        return {
            event: self.patterns.get(event, "")
            for event, kind in self.events.kinds.items()
            if kind is EventKind.BEFORE
        }

    def path(self, installation: Installation) -> Path:
        return installation.folder_named(self.variable, self.folder) / self.file

    def is_present(self, installation: Installation) -> bool:
        folder = installation.folder_named(self.variable, self.folder)
        is_here = (folder if self.folder else self.path(installation).parent).is_dir()
        return is_here or (bool(self.trace) and (installation.user_folder / self.trace).exists())

    def with_ours(self, text: str, installation: Installation) -> str:
        events = {**self.matchers, **(self.guard_matchers if installation.guards else {})}
        own_entries = {event: [self._entry(event, installation)] for event in events}
        if not text.strip():
            hooks = {**self.required, "hooks": own_entries}
            return json.dumps(hooks, indent=2, ensure_ascii=False) + "\n"
        root = self._checked(text)
        for key, value in self.required.items():
            if key not in root.keys:
                text = with_child(text, (), value, key)
        if "hooks" not in root.keys:
            return with_child(text, (), own_entries, "hooks")
        earlier = self._our_entries(_hooks(parse(text)))
        if earlier == own_entries:
            return text
        text = self._without(text, keep_empty=True)
        for event in earlier.keys() - own_entries.keys():
            if not _hooks(parse(text))[event]:
                text = without_child(text, ("hooks",), event)
        for event, entries in own_entries.items():
            if event in _hooks(parse(text)):
                text = with_child(text, ("hooks", event), entries[0])
            else:
                text = with_child(text, ("hooks",), entries, event)
        return text

    def moved(self, text: str) -> str:
        return ""

    def without_ours(self, text: str, moved: Sequence[str] = ()) -> str:
        if not text.strip():
            return text
        if self._first_of_ours(self._checked(text)) is None:
            return text
        remaining = self._without(text, keep_empty=False)
        return remaining if set(parse(remaining).keys) - self.required.keys() else ""

    def command(self, text: str, event: str) -> list[str]:
        entries = self._our_entries(_hooks(self._checked(text))) if text else {}
        for entry in entries.get(event, []):
            for handler in entry["hooks"] if self.nested else [entry]:
                if runs_our_hook(handler):
                    is_shell = isinstance(handler.get("command"), str)
                    return ["sh", "-c", handler["command"]] if is_shell else _words(handler)
        return []

    def _entry(self, event: str, installation: Installation) -> dict[str, Any]:
        http = installation.http if event in self._http_events else None
        handler = self._request(event, http) if http else self._command(event, installation)
        handler[self.timeout_key] = self.timeout
        pattern = self.patterns.get(event, "")
        matcher = {"matcher": pattern} if pattern else {}
        return {**matcher, "hooks": [handler]} if self.nested else {**handler, **matcher}

    def _command(self, event: str, installation: Installation) -> dict[str, Any]:
        words = (*installation.hook_command, self.host, *((event,) if self.names_event else ()))
        kind = {"type": "command"} if self.typed else {}
        kind |= {"name": self.label} if self.label else {}
        if self.exec_form:
            return {**kind, "exec": words[0], "args": list(words[1:])}
        return {**kind, "command": shlex.join(words) + " || true"}

    def _request(self, event: str, http: HttpAddress) -> dict[str, Any]:
        path = f"{self.host}/{event}" if self.names_event else self.host
        token = f"${TOKEN_VARIABLE}" if self.token_from_environment else http.token
        allowed = {"allowedEnvVars": [TOKEN_VARIABLE]} if self.token_from_environment else {}
        return {
            "type": "http",
            "url": f"http://127.0.0.1:{http.port}/hook/{path}",
            "headers": {"Authorization": f"Bearer {token}"},
            **allowed,
        }

    def _checked(self, text: str) -> JsoncNode:
        root = parse(text)
        hooks = _hooks(root) if root.is_table else None
        valid = isinstance(hooks, dict) and all(isinstance(item, list) for item in hooks.values())
        if not valid:
            raise ConfigError(
                f"`hooks` of {self.host} must be an object of lists",
                hint="fix the file first; it was not changed",
            )
        return root

    def _our_entries(self, hooks: Mapping[str, Any]) -> dict[str, list[Any]]:
        own_entries = {
            event: [entry for entry in entries if self._holds_ours(entry)]
            for event, entries in hooks.items()
        }
        return {event: entries for event, entries in own_entries.items() if entries}

    @property
    def _http_events(self) -> list[str]:
        kinds = self.events.kinds if self.http_setup else {}
        return [event for event, kind in kinds.items() if kind is EventKind.TOOL]

    def _holds_ours(self, entry: Any) -> bool:
        if not isinstance(entry, dict):
            return False
        handlers = entry.get("hooks", []) if self.nested else [entry]
        return isinstance(handlers, list) and any(map(self._is_ours, handlers))

    def _is_ours(self, handler: Any) -> bool:
        return runs_our_hook(handler) or self._posts_to_us(handler)

    def _posts_to_us(self, handler: Any) -> bool:
        """True for an HTTP request like those that an installation writes."""
        if not isinstance(handler, dict) or handler.get("type") != "http":
            return False
        url, events = handler.get("url"), "|".join(self._http_events)
        path = f"{self.host}/(?:{events})" if self.names_event else self.host
        return bool(events) and isinstance(url, str) and bool(re.fullmatch(_URL + path, url))

    def _without(self, text: str, *, keep_empty: bool) -> str:
        """`text` without our handlers, and without groups that hold nothing else. Lists that this
        empties, and an empty `hooks` table, are removed too, unless `keep_empty` is set."""
        while (handler_path := self._first_of_ours(parse(text))) is not None:
            event, group, handler = handler_path
            hooks = _hooks(parse(text))
            if self.nested and len(hooks[event][group]["hooks"]) > 1:
                text = without_child(text, ("hooks", event, str(group), "hooks"), handler)
                continue
            text = without_child(text, ("hooks", event), group)
            if not keep_empty and not _hooks(parse(text))[event]:
                text = without_child(text, ("hooks",), event)
        if not keep_empty and "hooks" in parse(text).keys and not _hooks(parse(text)):
            text = without_child(text, (), "hooks")
        return text

    def _first_of_ours(self, root: JsoncNode) -> tuple[str, int, int] | None:
        """The event, the index of the group, and the index of our handler within the group."""
        for event, entries in _hooks(root).items():
            for group, entry in enumerate(entries):
                if self._holds_ours(entry):
                    handlers = entry["hooks"] if self.nested else [entry]
                    return event, group, [self._is_ours(item) for item in handlers].index(True)
        return None


def runs_our_hook(handler: Any) -> bool:
    """True if the handler's command runs the launcher, the file of the hook client, or
    `upwell hook`."""
    words = _words(handler)
    if len(words) > 1 and Path(words[0]).name == LAUNCHER:
        return True
    if len(words) > 3 and words[1:3] == ["-I", "-S"]:
        return words[3].endswith("/" + CLIENT)
    return len(words) > 1 and Path(words[0]).name == COMMAND and words[1] == "hook"


def _words(handler: Any) -> list[str]:
    if not isinstance(handler, dict):
        return []
    program, args, command = handler.get("exec"), handler.get("args"), handler.get("command")
    if isinstance(program, str) and isinstance(args, list):
        return [program, *map(str, args)]
    try:
        return shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return []


def _hooks(root: JsoncNode) -> Any:
    node = root.under("hooks")
    return {} if node is None else node.value
