"""Copilot CLI: `~/.copilot/session-state/SESSION/events.jsonl`; `SESSION.jsonl` before 0.0.342.

Every line is `{"type", "data", "id", "timestamp", "parentId"}`, and `agentId` if a subagent wrote
it. A call begins with `tool.execution_start` and ends with `tool.execution_complete`, which share a
`toolCallId`. A command that ran counts as a success, whatever its exit status. `source` says who
wrote a user's message if the user did not.

Source: `session-events.d.ts` of `@github/copilot-sdk` 1.0.14, and sessions of Copilot CLI 1.0.102.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import field

from upwell.episodes.events import Kind, SessionEvent
from upwell.hosts.events import COMMANDS
from upwell.replay.transcripts.base import (
    ReadTally,
    SessionDraft,
    TranscriptFormat,
    closed,
    folder,
    table,
    text,
    text_of,
    tool_name,
)

_OWN_TOOLS = ("report_intent",)
"""Tools with which the agent reports to its host."""
_READ_SHELLS = frozenset({"read_bash", "write_bash", "read_powershell", "write_powershell"})
"""Tools that return the output of a command that `bash` or `powershell` started."""
_STATUS = re.compile(r"<shellId: [^<>\n]{1,100} completed with exit code (-?\d+)>\s*\Z")
_STATUS_CHARS = 300
_GUIDANCE = re.compile(r'\n\nTool "[^"\n]{1,200}" \w{1,20}\. Additional guidance from \w+ hooks:\n')
"""The line before the text that hooks add to a result."""
_REFUSED = ("denied", "rejected")
_COMPACTIONS = ("session.compaction_complete", "session.context_cleared")
_IGNORED = frozenset(
    """
    abort assistant.fusion_phase_activity assistant.fusion_phase_completed
    assistant.fusion_phase_failed assistant.fusion_phase_started assistant.idle assistant.intent
    assistant.message_delta assistant.message_start assistant.reasoning assistant.reasoning_delta
    assistant.server_tool_progress assistant.streaming_delta assistant.tool_call_delta
    assistant.turn_end assistant.turn_start assistant.usage auto_mode_switch.completed
    auto_mode_switch.requested capabilities.changed command.completed command.execute command.queued
    commands.changed elicitation.completed elicitation.requested exit_plan_mode.completed
    exit_plan_mode.requested external_tool.completed external_tool.requested factory.run_settled
    factory.run_started factory.run_updated hook.end hook.progress hook.start
    mcp.headers_refresh_completed mcp.headers_refresh_required mcp.oauth_completed
    mcp.oauth_required mcp.prompts.list_changed mcp.resources.list_changed mcp.tools.list_changed
    mcp_app.tool_call_complete model.call_failure model.call_finished pending_messages.modified
    permission.completed permission.requested sampling.completed sampling.requested
    session.auto_mode_resolved session.auto_tier_recommendation session.auto_tier_switch_failed
    session.autopilot_objective_changed session.background_tasks_changed session.binary_asset
    session.canvas.closed session.canvas.opened session.canvas.recorded
    session.canvas.registry_changed session.canvas.removed session.canvas.unavailable
    session.compaction_start session.completion_receipt session.context_changed
    session.custom_agents_updated session.custom_notification session.error
    session.extensions.attachments_pushed session.extensions_loaded session.fusion_completed
    session.fusion_resolved session.fusion_route_failed session.fusion_route_started session.handoff
    session.idle session.info session.managed_settings_enforced session.managed_settings_resolved
    session.mcp_server_needs_reconnect session.mcp_server_removed session.mcp_server_status_changed
    session.mcp_servers_loaded session.mode_changed session.mode_notice_delivered
    session.model_change session.permissions_changed session.plan_changed
    session.remote_steerable_changed session.resume session.schedule_cancelled
    session.schedule_created session.schedule_rearmed session.session_limits_changed
    session.shutdown session.skills_loaded session.snapshot_rewind session.start
    session.task_complete session.title_changed session.todos_changed session.tools_updated
    session.truncation session.usage_checkpoint session.usage_info session.usage_record
    session.warning session.workspace_file_changed session_limits_exhausted.completed
    session_limits_exhausted.requested skill.context_delivered_ref skill.invoked subagent.completed
    subagent.configured subagent.deselected subagent.failed subagent.selected subagent.started
    system.message system.notification tool.execution_partial_result tool.execution_progress
    tool.user_requested tool_search.activated ui.ephemeral_query user_input.completed
    user_input.requested
    """.split()
)


def read(path: Path, start: int, tally: ReadTally) -> Iterator[SessionEvent]:
    name = path.parent.name if path.name == "events.jsonl" else path.stem
    yield from closed(_CopilotSession(name, "copilot", tally).lines(path, start))


class _CopilotSession(SessionDraft):
    """`calls` are those without an outcome so far, by their ids."""

    calls: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])

    def record(self, record: Mapping[str, Any]) -> Iterator[SessionEvent]:
        kind, data = text(record.get("type")), table(record.get("data"))
        if record.get("agentId") or data.get("parentToolCallId") or data.get("agentId"):
            return
        if kind == "session.start":
            self.session = text(data.get("sessionId")) or self.session
            self.tally.version = text(data.get("copilotVersion"))
        self.cwd = folder(table(data.get("context")).get("cwd") or data.get("cwd")) or self.cwd
        yield from self._of_record(kind, data)

    def _of_record(self, kind: str, data: Mapping[str, Any]) -> Iterator[SessionEvent]:
        if kind == "user.message":
            is_hosts = data.get("isAutopilotContinuation") or data.get("inputOrigin")
            if data.get("source") in (None, "user") and not is_hosts:
                yield from self.prompt(text(data.get("content")))
        elif kind == "assistant.message":
            yield from self.say(data.get("content"))
        elif kind == "tool.execution_start":
            self.calls[text(data.get("toolCallId"))] = data
        elif kind == "tool.execution_complete":
            call = self.calls.pop(text(data.get("toolCallId")), None)
            if call is not None and call.get("toolName") not in _OWN_TOOLS:
                yield from self._called(call, data)
        elif kind in _COMPACTIONS:
            if data.get("success") is not False:
                yield self.event(Kind.COMPACT)
        elif kind not in _IGNORED:
            self.tally.miss(kind)

    def _called(self, call: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[SessionEvent]:
        """Yield a call. The name of an MCP tool includes the server's."""
        error = table(data.get("error"))
        if error.get("code") in _REFUSED:
            return
        out = text_of(data.get("result")) or text(error.get("message"))
        if guidance := _GUIDANCE.search(out):
            out = out[: guidance.start()]
        server, tool = text(call.get("mcpServerName")), text(call.get("mcpToolName"))
        name = f"mcp__{server}__{tool}" if server and tool else text(call.get("toolName"))
        failed = data.get("success") is False or _status(call, data, out) != 0
        yield self.tool(name, call.get("arguments"), out, failed=failed)


def _status(call: Mapping[str, Any], data: Mapping[str, Any], out: str) -> int:
    """The exit status of a command; 0 for other calls and for a command that is still running."""
    status = table(data.get("shellExecution")).get("exitCode")
    if isinstance(status, int):
        return status
    name = text(call.get("toolName"))
    if tool_name(name) != COMMANDS and name not in _READ_SHELLS:
        return 0
    match = _STATUS.search(out[-_STATUS_CHARS:])
    return int(match[1]) if match else 0


def _recognises(path: Path, head: bytes) -> bool:
    return path.suffix == ".jsonl" and b'"session.start"' in head and b'"data"' in head


FORMAT = TranscriptFormat(
    name="copilot",
    recognises=_recognises,
    read=read,
    resumes=True,
    written_for="1.0.102",
)
