"""Cursor.

Cursor drops context of more than 10,000 characters. Hook output is flat, with snake_case keys. MCP
tools are named `MCP:tool`, without the server's name, so upwell recognises its own tools by their
names. A tool's result arrives as a JSON string, `tool_output`. Only the results of MCP tools can be
replaced. At the end of a turn, Cursor submits a `followup_message` as the user's next message.
`loop_count` counts these messages.

Sources: notes on its bundle (CLI 2026.09.18) and its documentation of hooks and rules.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from msgspec.structs import replace

from upwell.ground.types.cue import ToolAnswer
from upwell.hosts.base import AutoLoaded, Export, Host
from upwell.hosts.events import (
    COMMANDS,
    EventKind,
    HostEvent,
    HostEvents,
    answer_of,
    folder_of,
    plain_args,
    session_of,
    text_of,
)
from upwell.hosts.servers import ServerFile
from upwell.hosts.settings import JsonHooks

_MCP = "MCP:"


class CursorEvents(HostEvents):
    kinds: Mapping[str, EventKind] = {
        "sessionStart": EventKind.SESSION,
        "beforeSubmitPrompt": EventKind.PROMPT,
        "beforeShellExecution": EventKind.BEFORE,
        "postToolUse": EventKind.TOOL,
        "preCompact": EventKind.COMPACT,
        "stop": EventKind.STOP,
        "sessionEnd": EventKind.END,
    }
    readers: Mapping[str, str] = {
        "Read": "Read",
        "read_file": "Read",
        "Grep": "Grep",
        "Glob": "Glob",
        "LS": "LS",
        "Shell": "Bash",
        "Bash": "Bash",
        "SemanticSearch": "Grep",
        "WebFetch": "WebFetch",
        "WebSearch": "WebSearch",
    }
    recorded = ()
    agent_key, continued_key = "", "loop_count"

    def session(self, payload: Mapping[str, Any]) -> str:
        return session_of(payload.get("conversation_id") or payload.get("session_id"))

    def cwd(self, payload: Mapping[str, Any]) -> str | None:
        roots = payload.get("workspace_roots")
        first = roots[0] if isinstance(roots, list) and roots else None
        return folder_of(payload.get("cwd")) or folder_of(first)

    def text(self, kind: EventKind, payload: Mapping[str, Any]) -> str:
        return text_of(payload.get("prompt")) if kind is EventKind.PROMPT else ""

    def call(self, event: HostEvent, payload: Mapping[str, Any]) -> HostEvent | None:
        if event.kind is EventKind.BEFORE:
            args = plain_args({"command": text_of(payload.get("command"))})
            return replace(event, tool=COMMANDS, args=args)
        return super().call(event, payload)

    def tool(self, called: str, payload: Mapping[str, Any]) -> tuple[str, str]:
        if not called.startswith(_MCP):
            return self.readers.get(called, ""), ""
        tool = called.removeprefix(_MCP)
        return ("", "") if "__" in tool else (tool, tool)

    def result(self, payload: Mapping[str, Any]) -> Any:
        return payload.get("tool_output")

    def answer(self, tool: str, payload: Mapping[str, Any]) -> ToolAnswer | None:
        return answer_of(self.result(payload), tool=tool)

    def reply(self, called: str, payload: Mapping[str, Any]) -> Any:
        """The content of an MCP result, the only part that can be replaced."""
        output = self.result(payload) if called.startswith(_MCP) else None
        try:
            result = orjson.loads(output) if isinstance(output, str) else output
        except orjson.JSONDecodeError:
            return None
        if not isinstance(result, Mapping) or result.get("isError"):
            return None
        content = result.get("content")
        return {"content": content} if isinstance(content, list) else None

    def start(self, session: str, folder: str) -> tuple[str, Mapping[str, Any]]:
        return "sessionStart", {
            "conversation_id": session,
            "hook_event_name": "sessionStart",
            "cursor_version": "2026.09.18",
            "workspace_roots": [folder],
            "is_background_agent": False,
        }

    def context_output(self, event: HostEvent, text: str) -> Mapping[str, Any]:
        return {"additional_context": text}

    def replacement_output(self, event: HostEvent, reply: Any) -> Mapping[str, Any]:
        return {"updated_mcp_tool_output": reply}

    def refusal_output(self, event: HostEvent, reason: str) -> Mapping[str, Any]:
        return {"permission": "deny", "user_message": reason, "agent_message": reason}

    def question_output(self, event: HostEvent, question: str) -> Mapping[str, Any]:
        return {"followup_message": question}


EVENTS = CursorEvents()
HOST = Host(
    name="cursor",
    clients=("cursor", "cursor-vscode"),
    title="Cursor",
    events=EVENTS,
    hooks=JsonHooks(
        host="cursor",
        folder=".cursor",
        file="hooks.json",
        events=EVENTS,
        nested=False,
        typed=False,
        required={"version": 1},
        next_step="restart Cursor",
    ),
    servers=ServerFile(
        agent="cursor",
        file=lambda user: user.user_folder / ".cursor" / "mcp.json",
        project_file=".cursor/mcp.json",
    ),
    writers={"Write": "Write", "Delete": "Delete", "edit_file": "Edit"},
    recorded_tools={
        "read_file_v2": "Read",
        "codebase_search": "Grep",
        "ripgrep_raw_search": "Grep",
        "glob_file_search": "Glob",
        "run_terminal_cmd": "Bash",
        "run_terminal_command": "Bash",
        "run_terminal_command_v2": "Bash",
        "edit_file_v2": "Edit",
        "search_replace": "Edit",
    },
    export=Export(
        tool_name="{}",
        file=".cursor/rules/upwell.mdc",
        layout="---\ndescription: Memory\nalwaysApply: true\n---\n{}",
    ),
    auto_loaded=AutoLoaded(
        folder=("AGENTS.md", ".cursorrules"),
        scoped=(".cursor/rules/**/*.mdc",),
    ),
    shares_hooks=True,
)
