"""Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-….jsonl`, one item per line.

An item is `{"timestamp", "type", "payload"}`. Until mid-2025 it was the payload alone. A call and
its output share a `call_id`. Subagents have their own files, which are skipped.

What the user typed is recorded as a `UserMessage` item; before 0.147, as a `user_message` event.
Only the oldest rollouts have neither. There, a message with the role of the user is read without
the elements that Codex adds to it.

An `item_completed` event tells how a call ended (`CommandExecution` and others). Its `id` is the
call's `call_id`, except in code mode, where a script in the tool `exec` makes the calls. Earlier
versions record such ends as `exec_command_end` and the like, or not at all.

Sources: rollouts of 0.169 and 0.171, and the protocol in its repository.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import field

from upwell.episodes.events import Kind, SessionEvent
from upwell.hosts.events import request_in
from upwell.replay.transcripts.base import (
    ReadTally,
    SessionDraft,
    TranscriptFormat,
    arguments,
    array,
    closed,
    folder,
    holds,
    json_table,
    records,
    table,
    text,
    text_of,
    tool_name,
)

_CALLS = frozenset({"custom_tool_call", "function_call", "local_shell_call"})
_OUTPUTS = frozenset({"custom_tool_call_output", "function_call_output"})
_ENDS: Mapping[str, str] = {
    "exec_command_end": "CommandExecution",
    "mcp_tool_call_end": "McpToolCall",
    "patch_apply_end": "FileChange",
}
"""The events of earlier versions about the end of a call, and the items that replaced them."""
_ABOUT_CALLS = frozenset({*_CALLS, *_OUTPUTS, *_ENDS, "web_search_call"})
_IGNORED_ITEMS = frozenset(
    """
    AgentMessage EnteredReviewMode ExitedReviewMode FunctionCallOutput HookPrompt ImageGeneration
    ImageView Plan Reasoning Sleep SubAgentActivity
    """.split()
)
"""The types of completed items without events."""
_NOT_THE_AGENTS = frozenset({"unified_exec_interaction", "user_shell"})
"""The `source` of a command that the user typed, or that only passes input to another one."""
_SCRIPT, _INPUT = "exec", "write_stdin"
_COMMANDS = frozenset({"Bash", "Edit", _SCRIPT, _INPUT})
"""The tools whose output tells an exit status."""
_EXIT = re.compile(
    r'(?:exited with code|exit code:?|"exit_code"\s*:)\s*(-?\d{1,10})', re.IGNORECASE
)
_RUNNING = re.compile(r"Process running with session ID (\d{1,18})")
_OUTPUT_MARK = "\nOutput:\n"
_EDGE_CHARS = 2_000
_FAILED = (
    "Script failed",
    "aborted by user",
    "apply_patch verification failed",
    "command aborted by user",
    "exec_command failed",
    "unsupported call",
)
"""How Codex begins the output of a call that did not work or was interrupted."""
_REFUSED = ("exec command rejected by user", "patch rejected by user", "rejected by user")


def _named(call: Mapping[str, Any]) -> tuple[str, Any]:
    """The name and the arguments of a call. For an MCP tool, the name includes the server's."""
    if call.get("type") == "local_shell_call":
        return "local_shell", table(call.get("action"))
    name, namespace = text(call.get("name")), text(call.get("namespace"))
    if namespace.startswith("mcp__"):
        name = f"{namespace}__{name}"
    return name, call.get("arguments", call.get("input"))


def _failed(output: Any, out: str, tool: str) -> bool:
    """Whether a call failed. Codex writes a command's exit status as text before the output, and
    earlier versions behind it."""
    if table(output).get("success") is False or out.startswith(_FAILED):
        return True
    if tool not in _COMMANDS:
        return False
    if out.startswith('{"output"'):
        status = table(json_table(out).get("metadata")).get("exit_code")
        if isinstance(status, int):
            return status != 0
    head, mark, _ = out.partition(_OUTPUT_MARK)
    printed = _EXIT.search(head[:_EDGE_CHARS])
    if printed is None and not mark:
        printed = _EXIT.search(out[-_EDGE_CHARS:])
    return printed is not None and int(printed[1]) != 0


def _as_item(kind: str, event: Mapping[str, Any]) -> dict[str, Any]:
    """An event of an earlier version about the end of a call, in the form of an item."""
    result = table(event.get("result"))
    called = {
        **table(event.get("invocation")),
        "result": result.get("Ok"),
        "error": {"message": result.get("Err")},
    }
    failed = event.get("success") is False or "Err" in result
    status = {"status": "failed"} if failed else {}
    own = called if kind == "mcp_tool_call_end" else {}
    return {**event, **own, **status, "type": _ENDS[kind], "id": event.get("call_id")}


Ended = tuple[str, Any, Any, bool]
"""The tool, the arguments, the output and whether the call failed."""


def _command(item: Mapping[str, Any]) -> Ended:
    out = text(item.get("aggregated_output")) or "\n".join(
        filter(None, (text(item.get("stdout")), text(item.get("stderr"))))
    )
    status = item.get("exit_code")
    failed = status != 0 if isinstance(status, int) else item.get("status") == "failed"
    return "exec_command", {"command": item.get("command")}, out, failed


def _patch(item: Mapping[str, Any]) -> Ended:
    """A change of files, with the patch in the form in which the agent writes it."""
    patch = []
    for path, change in table(item.get("changes")).items():
        fields = table(change)
        verb = {"add": "Add", "delete": "Delete"}.get(text(fields.get("type")), "Update")
        patch.append(f"*** {verb} File: {path}")
        patch.append(text(fields.get("unified_diff")) or text(fields.get("content")))
    out = "\n".join(filter(None, (text(item.get("stdout")), text(item.get("stderr")))))
    return "apply_patch", {"input": "\n".join(patch)}, out, item.get("status") == "failed"


def _mcp_call(item: Mapping[str, Any]) -> Ended:
    result = table(item.get("result"))
    out = text_of(result) or text(table(item.get("error")).get("message"))
    failed = item.get("status") == "failed" or result.get("isError") is True
    tool = f"mcp__{text(item.get('server'))}__{text(item.get('tool'))}"
    return tool, table(item.get("arguments")), out, failed


def _other_call(item: Mapping[str, Any]) -> Ended:
    """A call of a tool of the program around Codex, or one about subagents."""
    prompt = text(item.get("prompt"))
    args = table(item.get("arguments")) or ({"message": prompt} if prompt else {})
    out = text_of(array(item.get("content_items"))) or text(item.get("error"))
    failed = item.get("status") == "failed" or item.get("success") is False
    return text(item.get("tool")), args, out, failed


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Ended]] = {
    "CollabAgentToolCall": _other_call,
    "CommandExecution": _command,
    "DynamicToolCall": _other_call,
    "FileChange": _patch,
    "McpToolCall": _mcp_call,
}
"""The readers of the completed items that are about calls."""


_TYPED = "user.text"
_SUBAGENTS = frozenset({"memory_consolidation", "subagent"})
_COMPACTIONS = frozenset({"compacted", "context_compacted"})
_IGNORED = frozenset(
    """
    additional_tools agent_message agent_reasoning agent_reasoning_raw_content
    agent_reasoning_section_break auth_recovery_completed auth_recovery_started collab_close_end
    collab_agent_interaction_end collab_agent_spawn_end collab_resume_end collab_waiting_end
    compaction compaction_summary compaction_trigger configuration_update context_compaction
    deprecation_notice dynamic_tool_call_request dynamic_tool_call_response dynamic_tools_updated
    entered_review_mode environment_connected environment_disconnected error exec_approval_request
    exited_review_mode ghost_snapshot guardian_assessment guardian_warning hook_completed
    hook_started id_allocation image_generation_call image_generation_end inter_agent_communication
    inter_agent_communication_metadata item_started mcp_startup_complete mcp_startup_update
    model_reroute model_verification other plan_update realtime_conversation_closed
    realtime_conversation_realtime realtime_conversation_sdp realtime_conversation_started
    realtime_item reasoning safety_buffering security_risk_score session_configured session_meta
    shutdown_complete stream_error sub_agent_activity task_complete task_started
    terminal_interaction thread_goal_updated thread_name_updated thread_queue_changed
    thread_rolled_back thread_settings_applied token_count token_usage_record tool_search_call
    tool_search_output turn_aborted turn_context turn_diff turn_moderation_metadata
    undo_completed undo_started view_image_tool_call warning web_search_begin web_search_end
    world_state
    """.split()
)
"""The types of items without events."""
_OLD_FIELDS = frozenset({"instructions", "record_type"})
"""Fields of the items without a type in the oldest rollouts."""
_NAME = re.compile(r"\Arollout-.*?-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


def read(path: Path, start: int, tally: ReadTally) -> Iterator[SessionEvent]:
    begun = _payload(next((entry for _, entry in records(path, 0, ReadTally())), {}))
    is_subagents = any(name.lower().startswith("sub") for name in table(begun.get("source")))
    if is_subagents or text(begun.get("thread_source")) in _SUBAGENTS:
        return
    name = _NAME.match(path.stem)
    session = _CodexSession(
        name[1] if name else path.stem,
        "codex",
        tally,
        folder(begun.get("cwd")),
        records_prompts=holds(path, b'"user_message"') or holds(path, b'"UserMessage"'),
    )
    tally.version = text(begun.get("cli_version"))
    yield from closed(session.lines(path, start))


class _CodexSession(SessionDraft):
    """Reads a rollout. No call is yielded twice, although its output and the item about its end are
    both recorded.

    - `records_prompts`: the rollout records what the user typed. A prompt may be recorded in two
      ways one after the other; `last_prompt` is the latest way and prompt.
    - `open`: the calls without an outcome so far, by their ids.
    - `outputs`: the latest output of those that still run. `sessions` are their ids, by the number
      with which the agent asks for more output.
    - `answered`: the ids of the calls that were yielded.
    - `made`: how many calls were yielded because of an item about their end. `scripts` holds this
      number at the start of each script.
    """

    records_prompts: bool = False
    last_prompt: tuple[str, str] = ("", "")
    open: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    outputs: dict[str, str] = field(default_factory=dict[str, str])
    sessions: dict[str, str] = field(default_factory=dict[str, str])
    answered: set[str] = field(default_factory=set[str])
    scripts: dict[str, int] = field(default_factory=dict[str, int])
    made: int = 0
    searched: str = ""

    def record(self, record: Mapping[str, Any]) -> Iterator[SessionEvent]:
        outer, payload = text(record.get("type")), _payload(record)
        inner = text(payload.get("type"))
        self.cwd = folder(payload.get("cwd")) or self.cwd
        is_compaction = table(payload.get("item")).get("type") == "ContextCompaction"
        if is_compaction or outer in _COMPACTIONS or inner in _COMPACTIONS:
            yield from self.compaction()
            return
        for event in self._of_item(outer if outer in _IGNORED else inner or outer, payload):
            if event.kind is not Kind.PROMPT:
                self.last_prompt = ("", "")
            yield event

    def left(self) -> Iterator[SessionEvent]:
        for name, out in self.outputs.items():
            yield self.tool(*_named(self.open[name]), out, failed=False)

    def _of_item(self, kind: str, item: Mapping[str, Any]) -> Iterator[SessionEvent]:
        if kind == "user_message":
            yield from self._once(kind, text(item.get("message")))
        elif kind == "item_completed":
            completed = table(item.get("item"))
            if completed.get("type") == "UserMessage":
                parts = map(table, array(completed.get("content")))
                words = "".join(text(part.get("text")) for part in parts)
                yield from self._once("UserMessage", words)
            else:
                yield from self._completed(completed)
        elif kind == "message":
            if item.get("role") == "assistant":
                yield from self.say(text_of(item.get("content")))
            elif item.get("role") == "user" and not self.records_prompts:
                yield from self._in_message(item)
        elif kind in _ABOUT_CALLS:
            yield from self._of_call(kind, item)
        elif kind not in _IGNORED and (kind or not _OLD_FIELDS & item.keys()):
            self.tally.miss(kind)

    def _once(self, way: str, words: str) -> Iterator[SessionEvent]:
        """Yield what the user typed, without the context that an editor adds."""
        is_repeated = self.last_prompt[1] == words and self.last_prompt[0] != way
        self.last_prompt = (way, words)
        if not is_repeated:
            yield from self.typed(request_in(words, "codex"))

    def _in_message(self, item: Mapping[str, Any]) -> Iterator[SessionEvent]:
        """Yield what the user typed in a message, for a rollout that does not record it
        elsewhere. A message may tell of each of its texts what it is."""
        passed = table(item.get("internal_chat_message_metadata_passthrough"))
        kinds = array(item.get("content_item_kinds")) or array(passed.get("content_item_kinds"))
        for number, block in enumerate(array(item.get("content"))):
            if not kinds:
                yield from self.prompt(text_of(block))
            elif number < len(kinds) and kinds[number] == _TYPED:
                yield from self.typed(request_in(text_of(block), "codex"))

    def _of_call(self, kind: str, item: Mapping[str, Any]) -> Iterator[SessionEvent]:
        """Yield the calls that end with an item."""
        name = text(item.get("call_id"))
        if kind in _CALLS:
            self.open[name] = item
            self.scripts[name] = self.made
            if kind == "local_shell_call" and item.get("status") == "completed":
                yield from self._answer(name, "")
        elif kind in _OUTPUTS:
            yield from self._answer(name, item.get("output"))
        elif kind in _ENDS:
            yield from self._completed(_as_item(kind, item))
        else:
            yield from self._search(text(table(item.get("action")).get("query")))

    def _completed(self, item: Mapping[str, Any]) -> Iterator[SessionEvent]:
        """Yield the call about whose end an item tells, unless it was yielded before."""
        kind, name = text(item.get("type")), text(item.get("id"))
        if kind == "WebSearch":
            yield from self._search(text(item.get("query")))
        elif kind not in _READERS:
            if kind not in _IGNORED_ITEMS:
                self.tally.miss(f"completed {kind}")
        elif name not in self.answered and not self._is_elsewhere(item):
            self.answered.update(filter(None, [name]))
            self.outputs.pop(name, None)
            self.made += 1
            call = self.open.pop(name, None)
            if item.get("status") != "declined":
                tool, args, out, failed = _READERS[kind](item)
                if call is not None and kind != "McpToolCall":
                    tool, args = _named(call)
                yield self.tool(tool, args, out, failed=failed)

    def _is_elsewhere(self, item: Mapping[str, Any]) -> bool:
        """Whether the item is not about a call of the agent, or less exact than its output."""
        is_own = text(item.get("source")) not in _NOT_THE_AGENTS
        is_open = item.get("type") == "CollabAgentToolCall" and text(item.get("id")) in self.open
        return not is_own or is_open

    def _search(self, query: str) -> Iterator[SessionEvent]:
        """Yield a search of the web, which is recorded twice."""
        if query != self.searched or not query:
            yield self.tool("web_search", {"query": query}, "", failed=False)
        self.searched = query if query != self.searched else ""

    def _answer(self, name: str, output: Any) -> Iterator[SessionEvent]:
        """Yield a call with its output. A command that still runs is yielded when it ends. The
        calls that a script made are yielded instead of the script."""
        call = self.open.get(name)
        if call is None:
            return
        made = self.made - self.scripts.pop(name, self.made)
        if call.get("name") == _SCRIPT and made:
            del self.open[name]
            return
        if call.get("name") == _INPUT:
            number = arguments(_INPUT, call.get("arguments")).get("session_id", "")
            if asked := self.sessions.get(str(number)):
                del self.open[name]
                name, call = asked, self.open.get(asked)
                if call is None:
                    return
        out = text_of(output)
        tool, args = _named(call)
        if running := _RUNNING.search(out.partition(_OUTPUT_MARK)[0][:_EDGE_CHARS]):
            self.sessions[running[1]] = name
            self.outputs[name] = out
            return
        del self.open[name]
        self.outputs.pop(name, None)
        self.answered.add(name)
        if not out.startswith(_REFUSED):
            failed = _failed(output, out, tool_name(tool))
            yield self.tool(tool, args, out, failed=failed)


def _payload(record: Mapping[str, Any]) -> Mapping[str, Any]:
    return table(record.get("payload")) or record


def _recognises(path: Path, head: bytes) -> bool:
    if path.suffix != ".jsonl":
        return False
    return path.name.startswith("rollout-") or b'"type":"session_meta"' in head.replace(b" ", b"")


FORMAT = TranscriptFormat(
    name="codex",
    recognises=_recognises,
    read=read,
    resumes=True,
    written_for="0.171.0",
)
