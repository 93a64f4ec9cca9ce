"""Gemini CLI.

A hook's stdout must contain only JSON. No size limit is documented for the context that a hook
adds; we stay within 10,000 bytes.

Without a terminal, Gemini CLI puts the context from the session's start in front of the first
prompt, so the event for that prompt also contains it. A resumed session has lost that context.

Before every request to its model, Gemini CLI announces that it may compress (`PreCompress` with
`auto`). A compression is certain only if the user asked for it (`manual`). Whether another one has
taken place is read from the transcript (`capture/sessions.py`).

At the end of a turn, `decision: deny` makes the agent continue with `reason` as a new prompt.
Before a tool, it blocks the call. After a tool, it turns the result into a failed call ("Tool
result blocked: …"). The model would react to the failure, so we cannot replace results.

Sources: the documentation in its repository (2026-08) and the behaviour of 0.61.0.
"""

import json
import stat
from collections.abc import Mapping
from typing import Any

from upwell.ground.errors import LlmError
from upwell.ground.llm import Invocation
from upwell.hosts.base import (
    SYSTEM_FILE,
    AutoLoaded,
    Export,
    Headless,
    HeadlessQuestion,
    Host,
    at,
    document_in,
    number_at,
    text_at,
)
from upwell.hosts.events import EventKind, HostEvent, HostEvents
from upwell.hosts.servers import GEMINI_PLACEHOLDERS, ServerFile
from upwell.hosts.settings import JsonHooks


class GeminiEvents(HostEvents):
    kinds: Mapping[str, EventKind] = {
        "SessionStart": EventKind.SESSION,
        "BeforeAgent": EventKind.PROMPT,
        "BeforeTool": EventKind.BEFORE,
        "AfterTool": EventKind.TOOL,
        "PreCompress": EventKind.COMPACT,
        "AfterAgent": EventKind.STOP,
        "SessionEnd": EventKind.END,
    }
    readers: Mapping[str, str] = {
        "read_file": "Read",
        "read_many_files": "Read",
        "search_file_content": "Grep",
        "grep_search": "Grep",
        "glob": "Glob",
        "list_directory": "LS",
        "run_shell_command": "Bash",
        "web_fetch": "WebFetch",
        "google_web_search": "WebSearch",
    }
    server_marks = ("mcp_",)
    inserts = "gemini"
    announces_compactions = True

    def refusal_output(self, event: HostEvent, reason: str) -> Mapping[str, Any]:
        return {"decision": "deny", "reason": reason}

    def question_output(self, event: HostEvent, question: str) -> Mapping[str, Any]:
        return {"decision": "deny", "reason": question}


_SETTINGS = {
    "tools": {"core": ["none"]},
    "hooksConfig": {"enabled": False},
    "mcp": {"allowed": ["none"]},
    "context": {"fileName": ["none.md"]},
    "experimental": {"enableAgents": False},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False},
}


def _invoke(question: HeadlessQuestion) -> Invocation:
    """Settings of the system override the user's and leave the user's account alone. Gemini CLI
    keeps the session; nobody learns from it, because of its folder.

    Raises:
        LlmError: Gemini CLI would ignore the settings and offer its tools, because somebody else
            can write to a folder above them.
    """
    for folder in question.folder.parents:
        if folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise LlmError(f"Gemini CLI trusts no settings below {folder}: others can write to it")
    model = ("-m", question.model) if question.model else ()
    return Invocation(
        args=(
            *(*model, "-o", "json", "--skip-trust", "-e", "none"),
            *("--allowed-mcp-server-names", "none", "-p", ""),
        ),
        env={
            "GEMINI_CLI_SYSTEM_SETTINGS_PATH": str(question.folder / "settings.json"),
            "GEMINI_SYSTEM_MD": str(question.folder / SYSTEM_FILE),
        },
        files={"settings.json": json.dumps(_SETTINGS), SYSTEM_FILE: question.system},
    )


def _answer(output: str) -> tuple[str, int, int]:
    answer = document_in(output)
    models = at(answer, "stats", "models")
    used = list(models.values()) if isinstance(models, dict) else []
    return (
        text_at(answer, "response"),
        sum(number_at(model, "tokens", "prompt") for model in used),
        sum(number_at(model, "tokens", "candidates") for model in used),
    )


EVENTS = GeminiEvents()
HOST = Host(
    name="gemini",
    clients=("gemini-cli*",),
    title="Gemini CLI",
    events=EVENTS,
    hooks=JsonHooks(
        host="gemini",
        variable="GEMINI_CLI_HOME",
        folder="",
        file=".gemini/settings.json",
        events=EVENTS,
        patterns={
            "BeforeTool": "run_shell_command|mcp_.*",
            "AfterTool": "read_.*|search_file_content|grep_search|glob|list_directory|"
            "run_shell_command|web_fetch|google_web_search|mcp_.*",
            "PreCompress": "manual",
        },
        timeout=10_000,
        label="upwell",
        next_step="restart Gemini CLI; `/hooks` lists them",
    ),
    servers=ServerFile(
        agent="gemini",
        file=lambda user: user.folder_named("GEMINI_CLI_HOME", "") / ".gemini" / "settings.json",
        project_file=".gemini/settings.json",
        placeholders=GEMINI_PLACEHOLDERS,
        plain_url="sse",
        allowed=("mcp", "allowed"),
    ),
    writers={"write_file": "Write", "replace": "Edit", "save_memory": "save_memory"},
    recorded_tools={"smart_edit": "Edit"},
    export=Export(tool_name="mcp_upwell_{}", file="GEMINI.md"),
    auto_loaded=AutoLoaded(
        user=(".gemini/GEMINI.md",),
        folder=("GEMINI.md",),
        follows_imports=True,
    ),
    transcripts=(".gemini/tmp/*/chats/session-*.json", ".gemini/tmp/*/chats/session-*.jsonl"),
    headless=Headless(program="gemini", model="flash-lite", invoke=_invoke, answer=_answer),
)
