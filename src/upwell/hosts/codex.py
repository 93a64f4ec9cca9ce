"""Codex CLI.

Codex moves text of more than 2,500 tokens into a file, and ignores hook output with unknown keys.
After a tool call, `continue: false` does not end the turn: `reason` replaces the tool's result, and
the call does not count as failed. Codex rejects `updatedToolOutput`.

The event of a command has the output without the exit status. The transcript has the status, under
the id of the call, before the event is sent.

Sources: its generated JSON schemas (0.155), with `deny_unknown_fields` on every output; its hooks
page and `core/src/tools/registry.rs` on `continue`; its documentation of `AGENTS.md`; events and
transcripts recorded with 0.171.
"""

import os
import stat
from collections.abc import Mapping
from typing import Any

import orjson

from upwell.ground.llm import Invocation
from upwell.ground.types.cue import ToolAnswer
from upwell.hosts.base import (
    SYSTEM_FILE,
    AutoLoaded,
    Export,
    Headless,
    HeadlessQuestion,
    Host,
    events_in,
    number_at,
    text_at,
)
from upwell.hosts.edits import TOML
from upwell.hosts.events import (
    COMMANDS,
    MAX_PATH_CHARS,
    EventKind,
    HostEvent,
    HostEvents,
    answer_of,
    table_of,
    text_blocks,
    text_of,
)
from upwell.hosts.servers import ServerFile
from upwell.hosts.settings import JsonHooks

TAIL_BYTES = 1_000_000
"""The end of a transcript in which the record of the latest command is looked for."""


class CodexEvents(HostEvents):
    kinds: Mapping[str, EventKind] = {
        "SessionStart": EventKind.SESSION,
        "UserPromptSubmit": EventKind.PROMPT,
        "PreToolUse": EventKind.BEFORE,
        "PostToolUse": EventKind.TOOL,
        "PreCompact": EventKind.COMPACT,
        "Stop": EventKind.STOP,
        "SessionEnd": EventKind.END,
    }
    readers: Mapping[str, str] = {
        "Bash": "Bash",
        "shell": "Bash",
        "local_shell": "Bash",
        "exec_command": "Bash",
        "read_file": "Read",
        "grep_files": "Grep",
        "list_dir": "LS",
        "web_search": "WebSearch",
    }
    max_bytes = 7_500
    """The limit of 2,500 tokens in bytes, at a cautious three bytes per token."""
    reply_tokens = 2_400
    restores_context = True
    inserts = "codex"

    def answer(self, tool: str, payload: Mapping[str, Any]) -> ToolAnswer | None:
        if "error" in payload or tool != COMMANDS:
            return super().answer(tool, payload)
        return answer_of(self.result(payload), failed=_has_failed(payload), tool=tool)

    def reply(self, called: str, payload: Mapping[str, Any]) -> Any:
        """The text that can be replaced. None if the call failed or the result is not only text."""
        reply = payload.get("tool_response")
        if isinstance(reply, str):
            return reply
        if not isinstance(reply, Mapping) or reply.get("isError"):
            return None
        blocks = text_blocks(reply.get("content"))
        return "\n".join(block["text"] for block in blocks) if blocks else None

    def replacement_output(self, event: HostEvent, reply: Any) -> Mapping[str, Any]:
        return {"continue": False, "stopReason": "upwell shortened it", "reason": reply}


def _has_failed(payload: Mapping[str, Any]) -> bool | None:
    call = text_of(payload.get("tool_use_id"), 200)
    transcript = text_of(payload.get("transcript_path"), MAX_PATH_CHARS)
    if not call or not transcript.startswith("/"):
        return None
    for line in reversed(_tail_of(transcript).splitlines()):
        if call.encode() in line and b'"CommandExecution"' in line:
            try:
                record = table_of(orjson.loads(line))
            except orjson.JSONDecodeError:
                return None
            status = table_of(table_of(record.get("payload")).get("item")).get("exit_code")
            return None if status is None else bool(status != 0)
    return None


def _tail_of(path: str) -> bytes:
    """The end of the user's own file; empty if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
                return b""
            file.seek(max(0, status.st_size - TAIL_BYTES))
            return file.read(TAIL_BYTES)
    except (OSError, ValueError):
        return b""


_OFF = (
    *("hooks", "shell_tool", "unified_exec", "apps", "plugins", "multi_agent", "multi_agent_v2"),
    *("view_image", "image_generation", "goals"),
)
"""The features that have tools or hooks."""


def _invoke(question: HeadlessQuestion) -> Invocation:
    """`codex exec`. `--ignore-user-config` would turn off the user's provider with everything else,
    so each MCP server is turned off by name."""
    model = ("--model", question.model) if question.model else ()
    settings = [
        f"model_instructions_file={question.folder / SYSTEM_FILE}",
        "project_doc_max_bytes=0",
        "skills.include_instructions=false",
        "include_environment_context=false",
        'web_search="disabled"',
        *(f"mcp_servers.{name}.enabled=false" for name in question.servers),
    ]
    return Invocation(
        args=(
            *("exec", "--json", *model, "--ephemeral", "--skip-git-repo-check"),
            *("--ignore-rules", "--sandbox", "read-only"),
            *(word for feature in _OFF for word in ("--disable", feature)),
            *(word for setting in settings for word in ("-c", setting)),
            "-",
        ),
        files={SYSTEM_FILE: question.system},
    )


def _answer(output: str) -> tuple[str, int, int]:
    texts, tokens_in, tokens_out = [""], 0, 0
    for event in events_in(output):
        if text_at(event, "item", "type") == "agent_message":
            texts.append(text_at(event, "item", "text"))
        tokens_in += number_at(event, "usage", "input_tokens")
        tokens_out += number_at(event, "usage", "output_tokens")
    return texts[-1], tokens_in, tokens_out


EVENTS = CodexEvents()
HOST = Host(
    name="codex",
    clients=("codex-mcp-client", "codex*"),
    title="Codex CLI",
    events=EVENTS,
    hooks=JsonHooks(
        host="codex",
        variable="CODEX_HOME",
        folder=".codex",
        file="hooks.json",
        events=EVENTS,
        patterns={
            "PreToolUse": "Bash|shell|local_shell|exec_command|mcp__.*",
            "PostToolUse": (
                "Bash|shell|local_shell|exec_command|read_file|grep_files|list_dir|mcp__.*"
            ),
        },
        unused=("SessionEnd",),
        next_step="start codex in a terminal and trust the hooks that it shows for review; until "
        "then it skips them",
    ),
    servers=ServerFile(
        agent="codex",
        file=lambda user: user.folder_named("CODEX_HOME", ".codex") / "config.toml",
        tables=(("mcp_servers",),),
        format=TOML,
        project_file=".codex/config.toml",
    ),
    writers={"apply_patch": "Edit"},
    recorded_tools={"shell_command": "Bash", "local_shell_call": "Bash"},
    export=Export(tool_name="mcp__upwell__{}"),
    auto_loaded=AutoLoaded(
        user=(".codex/AGENTS.override.md", ".codex/AGENTS.md"),
        folder=("AGENTS.override.md", "AGENTS.md"),
    ),
    transcripts=(
        ".codex/sessions/**/rollout-*.jsonl",
        ".codex/archived_sessions/**/rollout-*.jsonl",
    ),
    headless=Headless(program="codex", model="gpt-6-luna", invoke=_invoke, answer=_answer),
)
