"""Gemini CLI. Stdout must be JSON and nothing else. It documents no limit; we keep to 10 000 bytes.

Without a terminal, what hooks say as a session begins is put before the first prompt, and comes
back in that prompt's event. A session that is resumed has lost whatever began with it. Before every
request to its model Gemini CLI says that it may compress (`PreCompress`, `auto`); only what the
user asked for (`manual`) is sure to be one, and of the others its transcript tells
(`capture/rewritten.py`).

What a tool answered cannot be replaced: `decision: deny` makes a failed call of it ("Tool result
blocked: …"), which the model would act on.

Source: its repository's hooks documentation (2026-08), and what 0.61.0 did.
"""

import re
from collections.abc import Mapping
from typing import Any

from upwell.hook.events.base import EventKind
from upwell.hook.events.nested import NestedHost

_SAID_BY_HOOKS = re.compile(r"\A(?:<hook_context>.*?</hook_context>\s*)+", re.DOTALL)


def _asked(prompt: str) -> str:
    """What the user asked, without what hooks have said before it."""
    return _SAID_BY_HOOKS.sub("", prompt)


def _forgets(payload: Mapping[str, Any]) -> bool:
    return payload.get("trigger") != "auto"


HOST = NestedHost(
    name="gemini",
    max_bytes=10_000,
    events={
        "SessionStart": EventKind.SESSION,
        "BeforeAgent": EventKind.PROMPT,
        "AfterTool": EventKind.TOOL,
        "PreCompress": EventKind.COMPACT,
        "AfterAgent": EventKind.STOP,
        "SessionEnd": EventKind.END,
    },
    readers={
        "read_file": "Read",
        "read_many_files": "Read",
        "search_file_content": "Grep",
        "grep_search": "Grep",
        "glob": "Glob",
        "list_directory": "LS",
        "run_shell_command": "Bash",
        "web_fetch": "WebFetch",
        "google_web_search": "WebSearch",
    },
    servers=("mcp_",),
    asked=_asked,
    forgets=_forgets,
)
