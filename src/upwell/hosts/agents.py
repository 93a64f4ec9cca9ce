"""The agents whose configuration we know how to edit: a literal list, one entry each.

Sources: the hosts' own documentation as of 2026-09, see each entry of `hook/events`.
"""

from collections.abc import Mapping

from upwell.hosts.base import HostFile, JsonHooks
from upwell.hosts.opencode import HOST as OPENCODE

_READING = "Read|Grep|Glob|LS|Bash|WebFetch|WebSearch|NotebookRead|mcp__.*"
CLAUDE = JsonHooks(
    name="claude",
    variable="CLAUDE_CONFIG_DIR",
    folder=".claude",
    file="settings.json",
    events={
        "SessionStart": "",
        "UserPromptSubmit": "",
        "PostToolUse": _READING,
        "PostToolUseFailure": _READING,
        "SubagentStart": "",
        "SubagentStop": "",
        "Stop": "",
        "SessionEnd": "",
    },
    over_http=frozenset({"PostToolUse", "PostToolUseFailure"}),
    by_variable=True,
    todo="start Claude Code anew; `/hooks` shows them",
)
CODEX = JsonHooks(
    name="codex",
    variable="CODEX_HOME",
    folder=".codex",
    file="hooks.json",
    events={
        "SessionStart": "",
        "UserPromptSubmit": "",
        "PostToolUse": "Bash|shell|local_shell|exec_command|read_file|grep_files|list_dir|mcp__.*",
        "PreCompact": "",
        "Stop": "",
    },
    todo="start codex in a terminal, which asks to review them: until you trust them it skips them",
)
GEMINI = JsonHooks(
    name="gemini",
    variable="GEMINI_CLI_HOME",
    folder="",
    file=".gemini/settings.json",
    events={
        "SessionStart": "",
        "BeforeAgent": "",
        "AfterTool": "read_.*|search_file_content|grep_search|glob|list_directory|"
        "run_shell_command|web_fetch|google_web_search|mcp_.*",
        "PreCompress": "manual",
        "AfterAgent": "",
        "SessionEnd": "",
    },
    timeout=10_000,
    label="upwell",
    todo="start Gemini CLI anew; `/hooks` shows them",
)
CURSOR = JsonHooks(
    name="cursor",
    variable="",
    folder=".cursor",
    file="hooks.json",
    events={
        "sessionStart": "",
        "beforeSubmitPrompt": "",
        "postToolUse": "",
        "preCompact": "",
        "stop": "",
        "sessionEnd": "",
    },
    nested=False,
    typed=False,
    head={"version": 1},
    todo="start Cursor anew",
)
COPILOT = JsonHooks(
    name="copilot",
    variable="COPILOT_HOME",
    folder=".copilot",
    file="hooks/upwell.json",
    events={
        "sessionStart": "",
        "userPromptSubmitted": "",
        "postToolUse": "",
        "postToolUseFailure": "",
        "preCompact": "",
        "agentStop": "",
        "sessionEnd": "",
    },
    nested=False,
    timeout_key="timeoutSec",
    exec_form=True,
    named_event=True,
    head={"version": 1},
    over_http=frozenset({"postToolUse", "postToolUseFailure"}),
    todo="start Copilot CLI anew",
)
VSCODE = JsonHooks(
    name="vscode",
    variable="COPILOT_HOME",
    folder=".copilot",
    file="hooks/upwell-vscode.json",
    events={"SessionStart": "", "PostToolUse": "", "PreCompact": "", "Stop": ""},
    nested=False,
    todo="reload the window; hooks are a preview feature of VS Code",
)

OVER_HTTP: Mapping[str, JsonHooks] = {"claude": CLAUDE, "copilot": COPILOT}
"""Those that can make requests of hooks. Only the event that comes most: a command answers and
starts the daemon where none runs, a request fails. Copilot takes a header from the environment with
https only, so the token stands in its file."""
AGENTS: Mapping[str, HostFile] = {
    agent.name: agent for agent in (CLAUDE, CODEX, GEMINI, CURSOR, COPILOT, VSCODE, OPENCODE)
}
