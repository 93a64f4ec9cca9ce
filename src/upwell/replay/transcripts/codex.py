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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from upwell.episodes.events import Kind, SessionEvent
from upwell.hosts.prompts import request_in
from upwell.replay.transcripts.base import (
    ReadTally,
    SessionDraft,
    TranscriptFormat,
    array,
    closed,
    folder,
    holds,
    moment,
    records,
    table,
    text,
    text_of,
)
from upwell.replay.transcripts.codex_calls import CodexCalls

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


class _Prompts(Struct):
    """Recognises the user's prompts. `are_recorded`: the rollout records what the user typed. A
    prompt may be recorded in two ways one after the other; `last` is the latest way and prompt."""

    are_recorded: bool
    last: tuple[str, str] = ("", "")

    def typed(self, draft: SessionDraft, way: str, words: str, at: float) -> Iterator[SessionEvent]:
        """Yield what the user typed, without the context that an editor adds."""
        is_repeated = self.last[1] == words and self.last[0] != way
        self.last = (way, words)
        if not is_repeated:
            yield from draft.typed(request_in(words, "codex"), at)

    def in_message(
        self, draft: SessionDraft, item: Mapping[str, Any], at: float
    ) -> Iterator[SessionEvent]:
        """Yield what the user typed in a message, for a rollout that does not record it
        elsewhere. A message may tell of each of its texts what it is."""
        passed = table(item.get("internal_chat_message_metadata_passthrough"))
        kinds = array(item.get("content_item_kinds")) or array(passed.get("content_item_kinds"))
        for number, block in enumerate(array(item.get("content"))):
            if not kinds:
                yield from draft.prompt(text_of(block), at)
            elif number < len(kinds) and kinds[number] == _TYPED:
                yield from draft.typed(request_in(text_of(block), "codex"), at)


class _Reading(Struct):
    draft: SessionDraft
    prompts: _Prompts
    calls: CodexCalls = field(default_factory=CodexCalls)


def read(path: Path, start: int, tally: ReadTally) -> Iterator[SessionEvent]:
    """The events of a session, from the byte `start` on."""
    return closed(_events(path, start, tally))


def _events(path: Path, start: int, tally: ReadTally) -> Iterator[SessionEvent]:
    name = _NAME.match(path.stem)
    draft = SessionDraft(name[1] if name else path.stem, "codex", tally)
    begun = _payload(next((entry for _, entry in records(path, 0, ReadTally())), {}))
    if _is_subagent(begun):
        return
    draft.cwd = folder(begun.get("cwd"))
    tally.version = text(begun.get("cli_version"))
    are_recorded = holds(path, b'"user_message"') or holds(path, b'"UserMessage"')
    reading = _Reading(draft, _Prompts(are_recorded))
    compacted = False
    for draft.offset, record in records(path, start, tally):
        payload, at = _payload(record), moment(record.get("timestamp"))
        draft.cwd = folder(payload.get("cwd")) or draft.cwd
        if _is_compaction(record, payload):
            if not compacted:
                yield draft.event(Kind.COMPACT, at)
            compacted = True
            continue
        for event in _of_item(reading, text(record.get("type")), payload, at):
            compacted = False
            if event.kind is not Kind.PROMPT:
                reading.prompts.last = ("", "")
            yield event
    yield from reading.calls.left(draft)


def _payload(record: Mapping[str, Any]) -> Mapping[str, Any]:
    return table(record.get("payload")) or record


def _is_subagent(begun: Mapping[str, Any]) -> bool:
    return text(begun.get("thread_source")) in _SUBAGENTS or any(
        name.lower().startswith("sub") for name in table(begun.get("source"))
    )


def _is_compaction(record: Mapping[str, Any], payload: Mapping[str, Any]) -> bool:
    return (
        text(record.get("type")) in _COMPACTIONS
        or text(payload.get("type")) in _COMPACTIONS
        or table(payload.get("item")).get("type") == "ContextCompaction"
    )


def _of_item(
    reading: _Reading, outer: str, item: Mapping[str, Any], at: float
) -> Iterator[SessionEvent]:
    draft, calls, prompts = reading.draft, reading.calls, reading.prompts
    kind = outer if outer in _IGNORED else text(item.get("type")) or outer
    if kind == "user_message":
        yield from prompts.typed(draft, kind, text(item.get("message")), at)
    elif kind == "item_completed":
        completed = table(item.get("item"))
        if completed.get("type") == "UserMessage":
            parts = map(table, array(completed.get("content")))
            words = "".join(text(part.get("text")) for part in parts)
            yield from prompts.typed(draft, "UserMessage", words, at)
        else:
            yield from calls.completed(draft, completed, at)
    elif kind == "message":
        yield from _of_message(reading, item, at)
    elif calls.takes(kind):
        yield from calls.of_item(draft, kind, item, at)
    elif kind not in _IGNORED and (kind or not _OLD_FIELDS & item.keys()):
        draft.tally.miss(kind)


def _of_message(reading: _Reading, item: Mapping[str, Any], at: float) -> Iterator[SessionEvent]:
    if item.get("role") == "assistant":
        yield from reading.draft.say(text_of(item.get("content")), at)
    elif item.get("role") == "user" and not reading.prompts.are_recorded:
        yield from reading.prompts.in_message(reading.draft, item, at)


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
