"""OpenCode. Our plugin, `opencode_plugin.js`, runs inside OpenCode. It sends events to the daemon,
under the names of OpenCode's plugin hooks, and inserts the text that the daemon returns.

While the daemon answers, an event starts no process. Like `hook/place.py`, the plugin connects only
to a socket that belongs to the user, in a folder that only the user can enter. A compaction loses
the context that was added when the session started. The plugin adds it again to the next prompt or
to the next result of a tool that does not write files, whichever comes first.

The plugin's default export has an entry for each API: `server` for OpenCode 1.x, `setup` for 2.x.
Versions of 1.x that look only for functions find the same one under the name `Upwell`.

Sources: OpenCode's documentation of plugins and rules, and the behaviour of 1.18.33: hooks
`chat.message`, `tool.execute.before`, `tool.execute.after` and `event` (`session.created`,
`session.compacted`, `session.idle`). A built-in tool returns `output`, with the exit status of a
command in `metadata.exit`; an MCP tool returns `content`. For 2.x, "Migrate plugins from V1" and
`packages/plugin/src/promise` in its repository (2026-11): hooks `prompt` and `context` of sessions,
`execute.after` of tools, and the stream of events. No version of 2.x was tried.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from upwell import __version__
from upwell.ground.errors import ConfigError
from upwell.ground.llm import Invocation
from upwell.ground.types.cue import ToolAnswer
from upwell.hosts.base import (
    AutoLoaded,
    Export,
    Headless,
    HeadlessQuestion,
    Host,
    events_in,
    number_at,
    text_at,
)
from upwell.hosts.events import EventKind, HostEvent, HostEvents, answer_of, session_of, text_of
from upwell.hosts.installation import Installation
from upwell.hosts.servers import ServerFile

MARK = "// Made by `upwell hook install opencode`. Remove it with `upwell hook uninstall opencode`."
PLUGIN = Path(__file__).with_name("opencode_plugin.js")
_COMMAND = re.compile(r"^const COMMAND = (\[.*\])$", re.MULTILINE)
_OWN_TOOLS = frozenset(
    """
    apply_patch create_file edit_file edit_notebook_file insert_edit_into_file
    multi_replace_string_in_file replace_string_in_file save_memory str_replace update_plan
    write_file
    """.split()
)
"""Built-in tools, of OpenCode or other hosts, whose names look like `server_tool`."""


class OpenCodeEvents(HostEvents):
    """The plugin's payloads, in which MCP tools are named `server_tool`."""

    kinds: Mapping[str, EventKind] = {
        "session.created": EventKind.SESSION,
        "chat.message": EventKind.PROMPT,
        "tool.execute.after": EventKind.TOOL,
        "session.compacting": EventKind.COMPACT,
        "session.idle": EventKind.STOP,
    }
    readers: Mapping[str, str] = {
        "read": "Read",
        "grep": "Grep",
        "glob": "Glob",
        "list": "LS",
        "bash": "Bash",
        "shell": "Bash",
        "webfetch": "WebFetch",
        "websearch": "WebSearch",
    }
    recorded = ()
    agent_key, args_key, continued_key = "", "args", ""

    def session(self, payload: Mapping[str, Any]) -> str:
        return session_of(payload.get("sessionID"))

    def text(self, kind: EventKind, payload: Mapping[str, Any]) -> str:
        if kind is EventKind.PROMPT:
            return text_of(payload.get("prompt"))
        return text_of(payload.get("source"), 64) if kind is EventKind.SESSION else ""

    def tool(self, called: str, payload: Mapping[str, Any]) -> tuple[str, str]:
        if called in self.readers:
            return self.readers[called], ""
        if called in _OWN_TOOLS or called.startswith("upwell_") or "_" not in called:
            return "", ""
        return called.replace("_", "__", 1), called

    def result(self, payload: Mapping[str, Any]) -> Any:
        return payload.get("output")

    def answer(self, tool: str, payload: Mapping[str, Any]) -> ToolAnswer | None:
        """The result of a call. The exit status of a command takes precedence over its text."""
        output, status = payload.get("output"), payload.get("exit")
        failed = payload.get("failed") is True or None
        if output is None and status is None and not failed:
            return None
        return answer_of({"output": output, "exit_code": status}, failed=failed, tool=tool)

    def reply(self, called: str, payload: Mapping[str, Any]) -> Any:
        output = payload.get("output")
        return output if isinstance(output, str) else None

    def start(self, session: str, folder: str) -> tuple[str, Mapping[str, Any]]:
        return "session.created", {"sessionID": session, "cwd": folder}

    def context_output(self, event: HostEvent, text: str) -> Mapping[str, Any]:
        return {"text": text}

    def replacement_output(self, event: HostEvent, reply: Any) -> Mapping[str, Any]:
        return {"output": reply}

    def refusal_output(self, event: HostEvent, reason: str) -> Mapping[str, Any]:
        return {}

    def question_output(self, event: HostEvent, question: str) -> Mapping[str, Any]:
        return {}


class PluginFile:
    """Our plugin's file. If another program wrote the file, it is left unchanged."""

    next_step = "restart OpenCode"
    http_setup = ""
    guard_matchers: Mapping[str, str] = {}

    def path(self, installation: Installation) -> Path:
        return config_folder(installation) / "plugins" / "upwell.js"

    def is_present(self, installation: Installation) -> bool:
        return config_folder(installation).is_dir()

    def with_ours(self, text: str, installation: Installation) -> str:
        self.without_ours(text)
        command = json.dumps(list(installation.hook_command))
        return f"{MARK}\n{_plugin(json.dumps(installation.socket), command, '""')}"

    def moved(self, text: str) -> str:
        return ""

    def without_ours(self, text: str, moved: Sequence[str] = ()) -> str:
        if text and not text.startswith(MARK):
            raise ConfigError(
                "plugins/upwell.js was not written by upwell",
                hint="move it away; it was not changed",
            )
        return ""

    def command(self, text: str, event: str) -> list[str]:
        """The command that the plugin runs if it cannot reach the daemon itself."""
        self.without_ours(text)
        match = _COMMAND.search(text)
        return [*json.loads(match[1]), "opencode", event] if match else []


def packaged_plugin() -> str:
    """The plugin as the entry point of an npm package, which finds the daemon by itself."""
    return _plugin("usualSocket()", "[]", "import.meta.dirname")


def _plugin(socket: str, command: str, package: str) -> str:
    values = {
        "__SOCKET__": socket,
        "__COMMAND__": command,
        "__PACKAGE__": package,
        "__VERSION__": __version__,
    }
    plugin = PLUGIN.read_text(encoding="utf-8")
    for mark, value in values.items():
        plugin = plugin.replace(mark, value)
    return plugin


def config_folder(installation: Installation) -> Path:
    """OpenCode's configuration folder."""
    if folder_name := installation.environment.get("OPENCODE_CONFIG_DIR"):
        return Path(os.path.expanduser(folder_name))
    return installation.folder_named("XDG_CONFIG_HOME", ".config") / "opencode"


def config_file(installation: Installation) -> Path:
    """The file with OpenCode's settings."""
    if file_name := installation.environment.get("OPENCODE_CONFIG"):
        return Path(os.path.expanduser(file_name))
    commented = config_folder(installation) / "opencode.jsonc"
    return commented if commented.is_file() else commented.with_suffix(".json")


def _invoke(question: HeadlessQuestion) -> Invocation:
    """`opencode run --pure` loads no plugins. Its model is the user's, because each user has other
    providers. OpenCode keeps the session; nobody learns from it, because of its folder."""
    model = ("-m", question.model) if question.model else ()
    agent = {
        "mode": "primary",
        "prompt": question.system,
        "tools": {"*": False},
        "permission": {"*": "deny"},
    }
    settings = {
        "agent": {"upwell": agent},
        "mcp": {name: {"enabled": False} for name in question.servers},
        "share": "disabled",
        "autoupdate": False,
    }
    return Invocation(
        args=(
            *("run", "--pure", *model, "--agent", "upwell"),
            *("--format", "json", "--title", "upwell"),
        ),
        env={"OPENCODE_CONFIG_CONTENT": json.dumps(settings)},
    )


def _spoken(output: str) -> tuple[str, int, int]:
    texts, tokens_in, tokens_out = [], 0, 0
    for event in events_in(output):
        texts.append(text_at(event, "part", "text") if event.get("type") == "text" else "")
        tokens_in += number_at(event, "part", "tokens", "input")
        tokens_out += number_at(event, "part", "tokens", "output")
    return "".join(texts), tokens_in, tokens_out


HOST = Host(
    name="opencode",
    clients=("opencode",),
    title="OpenCode",
    events=OpenCodeEvents(),
    hooks=PluginFile(),
    servers=ServerFile(
        agent="opencode",
        file=config_file,
        folder=config_folder,
        tables=(("mcp",),),
        shape="listed",
        project_file="opencode.json",
    ),
    writers={
        "edit": "Edit",
        "write": "Write",
        "patch": "Edit",
        "multiedit": "Edit",
        "apply_patch": "Edit",
    },
    export=Export(tool_name="upwell_{}"),
    auto_loaded=AutoLoaded(
        user=(".config/opencode/AGENTS.md",),
        folder=("AGENTS.md",),
        fallback=("CLAUDE.md",),
    ),
    transcripts=(
        ".local/share/opencode/opencode*.db",
        ".local/share/opencode/storage/session/*/*.json",
    ),
    headless=Headless(program="opencode", model="", invoke=_invoke, answer=_spoken),
)
