"""Claude Code: `~/.claude/projects/FOLDER/SESSION.jsonl`, one record per line.

A record with a message has the `type` user or assistant. A tool's result is a block in a user
message and refers to its call by `tool_use_id`. Sidechains, which belong to subagents, and meta
records, which the host writes, are skipped.

The host submits notices, plans, skills and other sessions' messages as the user's. Who wrote a
message is recorded in `origin` and `promptSource`, and in marks such as `planContent`. Earlier
versions record neither; there, elements such as `<task-notification>` are removed. A plan that the
user accepted opens a session; the user's part in it is a prompt with the plan's heading.

Sources: transcripts of 2.1.332 and of earlier versions, and the names in its program.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import field

from upwell.episodes.events import ACCEPTED_PLAN, SessionEvent
from upwell.hosts.events import typed_command, without_elements
from upwell.replay.transcripts.base import (
    ReadTally,
    SessionDraft,
    TranscriptFormat,
    array,
    between,
    closed,
    folder,
    table,
    text,
    text_of,
    tool_name,
)

_SESSION_NAME = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_EXIT = re.compile(r"(?:Error: )?Exit code (-?\d{1,10})")
_REFUSED = (
    "The user doesn't want to proceed with this tool use.",
    "The user doesn't want to take this action right now.",
)
_DID_NOT_RUN = frozenset({"cancelled", "user-rejected"})
"""Values of `toolDenialKind` for a call that the user or the end of the turn prevented."""
_TYPED = frozenset({"queued", "sdk", "suggestion_accepted", "typed"})
"""Values of `promptSource` for a prompt from the user."""
_NOT_TYPED = (
    "handedOff",
    "isVirtual",
    "isVisibleInTranscriptOnly",
    "planContent",
    "queueSkipAttachments",
    "queueTranscriptOnly",
    "scheduledTaskId",
    "sourceToolUseID",
    "textNotTyped",
    "wakeupSource",
)
"""Fields that only messages have that the user did not write."""
_HEADING = re.compile(r"^#{1,6}[ \t]++([^\n]*+)", re.MULTILINE)
_MAX_HEADING_CHARS = 200
_OWN_COMMANDS = ("<bash-", "<local-command-")
_REMINDER = ("<system-reminder>", "</system-reminder>")
_NOTIFICATION, _RUNNING = "<task-notification>", ("", "running")
_IGNORED = frozenset(
    """
    agent-color agent-name agent-setting ai-title api-request api-request-blob api-request-resumed
    api-request-shape artifact-autoreact-ledger artifact-comment-monitor atis-latch
    attribution-snapshot bridge-session content-replacement continued-in cost-state custom-title
    data-flow-incomplete data-flow-records derived-from dev-mods ended-by-model
    file-history-delta file-history-snapshot fork-context-ref frame-link history-suppression
    host-row hybrid-organization isolation-latch last-prompt memory-mode mode observer-ref
    permission-mode pr-link progress queue-operation relocated repl-mode resume-head-vouch
    session-owner summary system tag tools-used worktree-state
    """.split()
)
"""The types of records without events."""
_IGNORED_BLOCKS = frozenset(
    """
    advisor_tool_result bash_code_execution_tool_result code_execution_tool_result compaction
    connector_text container_upload document fallback image mcp_tool_result mcp_tool_use
    redacted_thinking server_tool_use text_editor_code_execution_tool_result thinking
    tool_reference tool_search_tool_result web_fetch_tool_result web_search_tool_result
    """.split()
)
"""The types of blocks of messages without events."""


def read(path: Path, start: int, tally: ReadTally) -> Iterator[SessionEvent]:
    is_named = bool(_SESSION_NAME.fullmatch(path.stem))
    session = _ClaudeSession(path.stem, "claude", tally, is_named=is_named)
    yield from closed(session.lines(path, start))


class _ClaudeSession(SessionDraft):
    """`is_named`: the session's id is known. `open` are the calls without an outcome so far, by
    their ids. `background` are commands that still ran when their calls completed, with their
    output."""

    is_named: bool = False
    open: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    background: dict[str, tuple[Mapping[str, Any], str]] = field(
        default_factory=dict[str, tuple[Mapping[str, Any], str]]
    )

    def record(self, record: Mapping[str, Any]) -> Iterator[SessionEvent]:
        if record.get("isSidechain"):
            return
        self.cwd = folder(record.get("cwd")) or self.cwd
        self.tally.version = text(record.get("version")) or self.tally.version
        if not self.is_named and text(record.get("sessionId")):
            self.session, self.is_named = record["sessionId"], True
        kind, content = text(record.get("type")), table(record.get("message")).get("content")
        if record.get("subtype") == "compact_boundary" or record.get("isCompactSummary"):
            yield from self.compaction()
        elif kind == "attachment":
            queued = table(record.get("attachment"))
            if queued.get("type") == "queued_command":
                mode = queued.get("commandMode")
                author = _is_users(queued) if mode in (None, "", "prompt") else False
                yield from self._of_texts(_texts(queued.get("prompt")), queued, author)
        elif kind == "assistant":
            if not record.get("isApiErrorMessage") and not record.get("isMeta"):
                yield from self._of_assistant(content)
        elif kind == "user":
            yield from self._of_user(content, record)
        elif kind not in _IGNORED:
            self.tally.miss(kind)

    def left(self) -> Iterator[SessionEvent]:
        for call, out in self.background.values():
            yield self._finished(call, out, failed=False)

    def _of_assistant(self, content: Any) -> Iterator[SessionEvent]:
        if isinstance(content, str):
            yield from self.say(content)
        for block in map(table, array(content)):
            kind = text(block.get("type"))
            if kind == "text":
                yield from self.say(block.get("text"))
            elif kind == "tool_use":
                self.open[text(block.get("id"))] = block
            elif kind not in _IGNORED_BLOCKS:
                self.tally.miss(f"assistant's {kind}")

    def _of_user(self, content: Any, record: Mapping[str, Any]) -> Iterator[SessionEvent]:
        blocks = map(table, array(content))
        results = [block for block in blocks if block.get("type") == "tool_result"]
        for block in results:
            yield from self._answered(block, record)
        if not results:
            if content is not None and not isinstance(content, str | list):
                self.tally.miss("user's content")
            texts = _texts(content)
            yield from self.typed(_accepted(texts, record))
            yield from self._of_texts(texts, record, _is_users(record))

    def _of_texts(
        self, texts: Sequence[str], record: Mapping[str, Any], is_users: bool | None
    ) -> Iterator[SessionEvent]:
        words = "\n".join(texts)
        if is_users is not True and self.background and _NOTIFICATION in words:
            yield from self._ended(words)
        is_command = not record.get("promptSource") and words.startswith(_OWN_COMMANDS)
        if is_users is None or (is_users and is_command):
            yield from self.prompt(words)
        elif is_users:
            yield from self.typed(_typed(texts))

    def _answered(
        self, block: Mapping[str, Any], record: Mapping[str, Any]
    ) -> Iterator[SessionEvent]:
        name = text(block.get("tool_use_id"))
        call = self.open.pop(name, None)
        out = text_of(block.get("content"))
        if call is None or _is_refused(record, out):
            return
        is_command = tool_name(call.get("name")) == "Bash"
        failed = _failed(block, record, out, is_command=is_command)
        result = record.get("toolUseResult")
        if is_command and not failed and table(result).get("backgroundTaskId"):
            self.background[name] = (call, out)
        else:
            yield self._finished(call, out, failed=failed)

    def _ended(self, notice: str) -> Iterator[SessionEvent]:
        """The commands whose end a task notification reports."""
        for part in notice.split(_NOTIFICATION)[1:]:
            name = between(part, "<tool-use-id>", "</tool-use-id>").strip()
            status = between(part, "<status>", "</status>").strip()
            if name in self.background and status not in _RUNNING:
                call, out = self.background.pop(name)
                out = between(part, "<summary>", "</summary>").strip() or out
                yield self._finished(call, out, failed=status != "completed")

    def _finished(self, call: Mapping[str, Any], out: str, *, failed: bool) -> SessionEvent:
        return self.tool(call.get("name"), call.get("input"), out, failed=failed)


def _texts(content: Any) -> list[str]:
    """The texts in a message, without images and documents."""
    if isinstance(content, str):
        return [content]
    return [text(block.get("text")) for block in map(table, array(content)) if block.get("text")]


def _accepted(texts: Sequence[str], record: Mapping[str, Any]) -> str:
    """What the user did by accepting the agent's plan, on one line; "" if a message is no such
    plan. Of the plan, only the heading is told."""
    plan = text(record.get("planContent"))
    begins = ACCEPTED_PLAN.strip()
    if not plan or record.get("isMeta") or not any(each.startswith(begins) for each in texts):
        return ""
    heading = _HEADING.search(plan)
    name = " ".join(heading[1].split()).removeprefix("Plan: ") if heading else ""
    return ACCEPTED_PLAN + name[:_MAX_HEADING_CHARS]


def _is_users(record: Mapping[str, Any]) -> bool | None:
    """Whether the user wrote a message; None if this is not recorded."""
    if record.get("isMeta") or any(record.get(name) for name in _NOT_TYPED):
        return False
    origin = text(table(record.get("origin")).get("kind"))
    if origin and origin != "unclassified":
        return origin == "human"
    source = text(record.get("promptSource"))
    return source in _TYPED if source else None


def _typed(texts: Sequence[str]) -> str:
    """The user's words in a message of the user. The host adds blocks and reminders to them."""
    own = [words for words in texts if without_elements(words, "claude")]
    own = own or [words for words in texts if not words.lstrip().startswith(_REMINDER[0])]
    words = "\n".join(own).strip()
    while words.endswith(_REMINDER[1]) and _REMINDER[0] in words:
        words = words[: _opening_of_last(words)].strip()
    return typed_command(words)


def _opening_of_last(words: str) -> int:
    """Where the reminder at the end of a message begins. A file in a reminder may hold such tags,
    too, so that the openings and endings have to be matched."""
    place = len(words)
    missing = 0
    while True:
        opening = words.rfind(_REMINDER[0], 0, place)
        if opening < 0:
            return 0
        missing += words.count(_REMINDER[1], opening, place) - 1
        if missing <= 0:
            return opening
        place = opening


def _is_refused(record: Mapping[str, Any], out: str) -> bool:
    """Whether the user prevented the call. That is not a failure."""
    denial = text(record.get("toolDenialKind"))
    if denial:
        return denial in _DID_NOT_RUN and not record.get("toolDenialAfterRun")
    return out.startswith(_REFUSED)


def _failed(
    block: Mapping[str, Any], record: Mapping[str, Any], out: str, *, is_command: bool
) -> bool:
    """Whether a call failed. A command that was interrupted has not worked."""
    result = table(record.get("toolUseResult"))
    if block.get("is_error") is True or result.get("interrupted") is True:
        return True
    status = result.get("exitCode")
    if is_command and isinstance(status, int):
        return status != 0
    printed = _EXIT.match(out) if is_command else None
    return record.get("toolDenialKind") == "interrupted" or bool(printed and int(printed[1]))


def _recognises(path: Path, head: bytes) -> bool:
    return path.suffix == ".jsonl" and any(
        mark in head
        for mark in (b'"sessionId":', b'"type":"file-history-snapshot"', b'"type":"summary"')
    )


FORMAT = TranscriptFormat(
    name="claude",
    recognises=_recognises,
    read=read,
    resumes=True,
    written_for="2.1.332",
)
