"""GitHub Copilot CLI.

Payloads are in camelCase and do not name their event, so the hook's command line names it. Copilot
CLI joins the context from all hooks and truncates it to 10 KB. A resumed session no longer has the
context that hooks added at its start, so we treat it as new. Some versions report the start and the
end of a session at each prompt (github/copilot-cli#991, #2491). A subagent has its own session, and
its task arrives as a prompt. The end of its turn names its parent's transcript.

Sources: the github/docs repository and the behaviour of 1.0.102 (`tests/live/`). In earlier
versions `toolArgs` was a JSON string.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import orjson

from upwell.ground.host_sessions import within
from upwell.ground.llm import Invocation
from upwell.ground.types.cue import ToolAnswer
from upwell.hosts.base import (
    AutoLoaded,
    Export,
    Headless,
    HeadlessQuestion,
    Host,
    events_in,
    text_at,
)
from upwell.hosts.events import (
    MAX_PATH_CHARS,
    STARTED,
    EventKind,
    HostEvent,
    HostEvents,
    answer_of,
    session_of,
    table_of,
    text_of,
)
from upwell.hosts.servers import ServerFile
from upwell.hosts.settings import JsonHooks

MAX_REPLY_CHARS = 10_000_000
_END_CHARS = 200
_STATUS = re.compile(r"<shellId: \S{1,50} completed with exit code (-?\d{1,10})>\s*\Z")
_SERVER_MARK = "-"
"""Copilot CLI names MCP tools `server-tool`."""


class CopilotEvents(HostEvents):
    kinds: Mapping[str, EventKind] = {
        "sessionStart": EventKind.SESSION,
        "userPromptSubmitted": EventKind.PROMPT,
        "preToolUse": EventKind.BEFORE,
        "postToolUse": EventKind.TOOL,
        "postToolUseFailure": EventKind.TOOL,
        "preCompact": EventKind.COMPACT,
        "agentStop": EventKind.STOP,
        "sessionEnd": EventKind.END,
    }
    readers: Mapping[str, str] = {
        "view": "Read",
        "read": "Read",
        "bash": "Bash",
        "shell": "Bash",
        "powershell": "Bash",
        "grep": "Grep",
        "rg": "Grep",
        "glob": "Glob",
        "web_fetch": "WebFetch",
        "web_search": "WebSearch",
    }
    recorded = (EventKind.STOP,)
    agent_key, tool_key = "agentId", "toolName"

    def session(self, payload: Mapping[str, Any]) -> str:
        session = session_of(payload.get("sessionId"))
        parent = session_of(payload.get("parentAgentId"))
        return within(parent, session) if parent and payload.get("agentId") else session

    def text(self, kind: EventKind, payload: Mapping[str, Any]) -> str:
        if kind is EventKind.PROMPT:
            return text_of(payload.get("prompt"))
        return STARTED if kind is EventKind.SESSION else ""

    def transcript(self, payload: Mapping[str, Any]) -> str:
        own = "" if payload.get("agentId") else payload.get("transcriptPath")
        return text_of(own, MAX_PATH_CHARS)

    def call(self, event: HostEvent, payload: Mapping[str, Any]) -> HostEvent | None:
        args = payload.get("toolArgs")
        try:
            decoded = orjson.loads(args) if isinstance(args, str) else args
        except orjson.JSONDecodeError:
            decoded = {}
        return super().call(event, {**payload, self.args_key: decoded})

    def tool(self, called: str, payload: Mapping[str, Any]) -> tuple[str, str]:
        tool = self.readers.get(called, "")
        if not tool and _SERVER_MARK in called and not called.startswith("upwell-"):
            return called.replace(_SERVER_MARK, "__", 1), called
        return tool, ""

    def result(self, payload: Mapping[str, Any]) -> Any:
        result = table_of(payload.get("toolResult"))
        return result.get("textResultForLlm", payload.get("error"))

    def answer(self, tool: str, payload: Mapping[str, Any]) -> ToolAnswer | None:
        """A command's exit status is in the last line of its output, and the call counts as a
        success whatever the status."""
        result = table_of(payload.get("toolResult"))
        text = text_of(result.get("textResultForLlm"), MAX_REPLY_CHARS)
        status = _STATUS.search(text[-_END_CHARS:])
        failed = status[1] != "0" if status else None
        if "error" in payload or result.get("resultType") == "failure":
            failed = True
        return answer_of(self.result(payload), failed=failed, tool=tool)

    def reply(self, called: str, payload: Mapping[str, Any]) -> Any:
        result = table_of(payload.get("toolResult"))
        return result.get("textResultForLlm") if result.get("resultType") == "success" else None

    def start(self, session: str, folder: str) -> tuple[str, Mapping[str, Any]]:
        payload = {"sessionId": session, "timestamp": 0, "cwd": folder, "source": "new"}
        return "sessionStart", payload

    def context_output(self, event: HostEvent, text: str) -> Mapping[str, Any]:
        return {"additionalContext": text}

    def replacement_output(self, event: HostEvent, reply: Any) -> Mapping[str, Any]:
        return {"modifiedResult": {"resultType": "success", "textResultForLlm": reply}}

    def refusal_output(self, event: HostEvent, reason: str) -> Mapping[str, Any]:
        return {"permissionDecision": "deny", "permissionDecisionReason": reason}


def _invoke(question: HeadlessQuestion) -> Invocation:
    """Copilot reads settings of the folder, which turn hooks off, if the folder is trusted. It has
    no flag for a system message, so that stands before the question in a file of instructions. It
    keeps the session; nobody learns from it, because of its folder."""
    model = ("--model", question.model) if question.model else ()
    disabled = [word for name in question.servers for word in ("--disable-mcp-server", name)]
    return Invocation(
        args=(
            *("-s", "--output-format", "json", "--trust-folder", *model),
            *("--available-tools=none", "--disable-builtin-mcps", *disabled),
            *("--no-ask-user", "--no-auto-update", "--no-remote", "--no-color"),
        ),
        files={
            ".github/copilot/settings.json": json.dumps({"disableAllHooks": True}),
            ".github/copilot-instructions.md": question.system,
        },
    )


def _answer(output: str) -> tuple[str, int, int]:
    said = [
        text_at(event, "data", "content")
        for event in events_in(output)
        if event.get("type") == "assistant.message"
    ]
    return "".join(said), 0, 0


EVENTS = CopilotEvents()
HOST = Host(
    name="copilot",
    clients=("github-copilot*", "copilot*"),
    title="GitHub Copilot CLI",
    events=EVENTS,
    hooks=JsonHooks(
        host="copilot",
        variable="COPILOT_HOME",
        folder=".copilot",
        file="hooks/upwell.json",
        events=EVENTS,
        nested=False,
        timeout_key="timeoutSec",
        exec_form=True,
        names_event=True,
        required={"version": 1},
        # Copilot expands variables in headers only for https, so the file contains the token.
        http_setup="export COPILOT_HOOK_ALLOW_LOCALHOST=1",
        next_step="restart Copilot CLI",
    ),
    writers={"edit": "Edit", "create": "Write", "str_replace": "Edit"},
    recorded_tools={"str_replace_editor": "Edit"},
    export=Export(tool_name="upwell-{}", file=".github/copilot-instructions.md"),
    auto_loaded=AutoLoaded(
        user=(".copilot/copilot-instructions.md",),
        folder=(".github/copilot-instructions.md", "AGENTS.md", "CLAUDE.md", "GEMINI.md"),
        scoped=(".github/instructions/**/*.instructions.md",),
    ),
    transcripts=(".copilot/session-state/*/events.jsonl", ".copilot/session-state/*.jsonl"),
    repeats_starts=True,
    headless=Headless(
        program="copilot",
        model="gpt-5-mini",
        invoke=_invoke,
        answer=_answer,
        servers=ServerFile(
            agent="copilot",
            file=lambda user: user.folder_named("COPILOT_HOME", ".copilot") / "mcp-config.json",
        ),
    ),
    shares_hooks=True,
)
