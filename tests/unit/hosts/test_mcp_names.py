"""Rules and guards on `server__tool` hold at every host, whatever it calls the tool."""

from typing import Any

import pytest

from upwell.hook.door import _cue
from upwell.hosts import HOSTS
from upwell.surface.rules import RuleScope

CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "claude": ("PreToolUse", {"tool_name": "mcp__code_hub__delete_repo"}),
    "codex": ("PreToolUse", {"tool_name": "mcp__code_hub__delete_repo"}),
    "gemini": ("BeforeTool", {"tool_name": "mcp_code_hub_delete_repo"}),
    "vscode": ("PreToolUse", {"tool_name": "mcp_code_hub_delete_repo"}),
    "copilot": ("preToolUse", {"toolName": "code_hub-delete_repo"}),
    "opencode": ("tool.execute.after", {"tool_name": "code_hub_delete_repo"}),
    "cursor": ("postToolUse", {"tool_name": "MCP:delete_repo"}),
}


@pytest.mark.parametrize("host", HOSTS)
def test_a_rule_names_the_server_and_the_tool(host: str) -> None:
    name, payload = CALLS[host]
    event = HOSTS[host].events.read(name, payload | {"session_id": "s", "cwd": "/p"})
    assert event is not None
    cue = _cue(event, host)
    for pattern, is_named in (
        ("code_hub__delete_repo", True),
        ("code_hub__delete_*", True),
        ("code_hub__read", False),
    ):
        assert RuleScope(tools=(pattern,)).matches(cue) is is_named
    other = RuleScope(tools=("files__delete_repo",)).matches(cue)
    assert other is (host == "cursor"), "only Cursor leaves out the server"


def test_gemini_tells_server_and_tool_apart() -> None:
    """As recorded with Gemini CLI 0.61."""
    context = {"server_name": "code", "tool_name": "hub_delete_repo", "command": "x"}
    payload = {"tool_name": "mcp_code_hub_delete_repo", "mcp_context": context}
    event = HOSTS["gemini"].events.read("AfterTool", payload)
    assert event is not None
    assert (event.tool, event.joined) == ("code__hub_delete_repo", "")
    own = {"tool_name": "mcp_upwell_upwell__read_more", "mcp_context": context}
    assert HOSTS["gemini"].events.read("AfterTool", own) is None
