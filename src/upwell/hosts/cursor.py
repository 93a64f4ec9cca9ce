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

from upwell.hosts.base import FOLDER, SESSION, AutoLoaded, Export, Host, Probe
from upwell.hosts.events import (
    COMMANDS,
    EventKind,
    HostEvent,
    answer_of,
    folder_of,
    plain_args,
    session_of,
    size_of,
    table_of,
    text_of,
)
from upwell.hosts.servers import ServerFile
from upwell.hosts.settings import JsonHooks

_MCP = "MCP:"
_READERS = {
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


class CursorEvents:
    """Events with the event's name in `hook_event_name` and the session in `conversation_id`."""

    max_bytes = 10_000
    readers: Mapping[str, str] = _READERS
    reply_tokens: int | None = None
    kinds: Mapping[str, EventKind] = {
        "sessionStart": EventKind.SESSION,
        "beforeSubmitPrompt": EventKind.PROMPT,
        "beforeShellExecution": EventKind.BEFORE,
        "postToolUse": EventKind.TOOL,
        "preCompact": EventKind.COMPACT,
        "stop": EventKind.STOP,
        "sessionEnd": EventKind.END,
    }

    def read(self, name: str, payload: Mapping[str, Any]) -> HostEvent | None:
        name = name or text_of(payload.get("hook_event_name"), 64)
        kind = self.kinds.get(name)
        if kind is None:
            return None
        session = session_of(payload.get("conversation_id") or payload.get("session_id"))
        cwd = folder_of(payload.get("cwd")) or _first_folder(payload.get("workspace_roots"))
        if kind is EventKind.TOOL:
            return _tool_event(name, payload, session, cwd)
        if kind is EventKind.BEFORE:
            args = plain_args({"command": text_of(payload.get("command"))})
            return HostEvent(
                kind=kind, name=name, session=session, cwd=cwd, tool=COMMANDS, args=args
            )
        text = text_of(payload.get("prompt")) if kind is EventKind.PROMPT else ""
        return HostEvent(
            kind=kind,
            name=name,
            session=session,
            cwd=cwd,
            text=text,
            is_continued=bool(payload.get("loop_count")),
        )

    def context_output(self, event: HostEvent, text: str) -> Mapping[str, Any]:
        return {"additional_context": text}

    def replacement_output(self, event: HostEvent, reply: Any) -> Mapping[str, Any]:
        return {"updated_mcp_tool_output": reply}

    def refusal_output(self, event: HostEvent, reason: str) -> Mapping[str, Any]:
        return {"permission": "deny", "user_message": reason, "agent_message": reason}

    def question_output(self, event: HostEvent, question: str) -> Mapping[str, Any]:
        return {"followup_message": question}


def _tool_event(
    name: str, payload: Mapping[str, Any], session: str, cwd: str | None
) -> HostEvent | None:
    called = text_of(payload.get("tool_name"), 200)
    tool = _READERS.get(called, "")
    if called.startswith(_MCP):
        bare_name = called.removeprefix(_MCP)
        tool = "" if "__" in bare_name else bare_name
    if not tool:
        return None
    return HostEvent(
        kind=EventKind.TOOL,
        name=name,
        session=session,
        cwd=cwd,
        tool=tool,
        joined=tool if called.startswith(_MCP) else "",
        args=plain_args(table_of(payload.get("tool_input"))),
        reply_chars=size_of(payload.get("tool_output")),
        answer=answer_of(payload.get("tool_output"), tool=tool),
        reply=_read_reply(payload.get("tool_output")) if called.startswith(_MCP) else None,
    )


def _read_reply(output: Any) -> Any:
    """The content of an MCP result, the only part that can be replaced."""
    try:
        result = orjson.loads(output) if isinstance(output, str) else output
    except orjson.JSONDecodeError:
        return None
    if not isinstance(result, Mapping) or result.get("isError"):
        return None
    content = result.get("content")
    return {"content": content} if isinstance(content, list) else None


def _first_folder(roots: Any) -> str | None:
    return folder_of(roots[0]) if isinstance(roots, list) and roots else None


HOST = Host(
    name="cursor",
    clients=("cursor", "cursor-vscode"),
    title="Cursor",
    events=CursorEvents(),
    hooks=JsonHooks(
        host="cursor",
        folder=".cursor",
        file="hooks.json",
        matchers={
            "sessionStart": "",
            "beforeSubmitPrompt": "",
            "postToolUse": "",
            "preCompact": "",
            "stop": "",
            "sessionEnd": "",
        },
        guard_matchers={"beforeShellExecution": ""},
        nested=False,
        typed=False,
        required={"version": 1},
        next_step="restart Cursor",
    ),
    servers=ServerFile(
        name="cursor",
        agent="cursor",
        file=lambda user: user.user_folder / ".cursor" / "mcp.json",
        folder=lambda user: user.user_folder / ".cursor",
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
    probe=Probe(
        event="sessionStart",
        payload={
            "conversation_id": SESSION,
            "hook_event_name": "sessionStart",
            "cursor_version": "2026.09.18",
            "workspace_roots": [FOLDER],
            "is_background_agent": False,
        },
    ),
    auto_loaded=AutoLoaded(
        folder=("AGENTS.md", ".cursorrules"),
        scoped=(".cursor/rules/**/*.mdc",),
    ),
    shares_hooks=True,
)
