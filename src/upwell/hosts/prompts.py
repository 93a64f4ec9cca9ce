"""Whose words a prompt holds, where the host does not say it.

Hosts submit notices, results of background tasks, other sessions' messages and files in the user's
name. Where an event or a transcript records no author, an element that the host wraps whole
(`<tag>…</tag>`) is removed if it begins a line; whatever stands before or behind it is the user's.
Nothing else counts as a mark, because users quote such texts.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

QUESTION = "[upwell] Before you finish: "
"""The beginning of the question that upwell asks at the end of a turn. Some hosts submit it as a
prompt from the user."""
INSERTED: Mapping[str, Sequence[str]] = {
    "claude": (
        "agent-message",
        "bash-exit-code",
        "bash-input",
        "bash-stderr",
        "bash-stdout",
        "channel",
        "coordinator-relay",
        "cross-session-message",
        "ide_diagnostics",
        "ide_opened_file",
        "ide_selection",
        "local-command-caveat",
        "local-command-stderr",
        "local-command-stdout",
        "remote-review",
        "slack-ping",
        "slack-tag-message",
        "system-reminder",
        "task-notification",
        "teammate-message",
        "tick",
        "user-prompt-submit-hook",
    ),
    "codex": (
        "INSTRUCTIONS",
        "context_window_reminder",
        "environment_context",
        "hook_prompt",
        "permissions instructions",
        "recommended_plugins",
        "skill",
        "subagent_notification",
        "turn_aborted",
        "user_instructions",
        "user_shell_command",
    ),
    "gemini": ("hook_context", "session_context"),
    "copilot": ("current_datetime", "system_reminder"),
    "cursor": ("system_reminder",),
    "opencode": ("system-reminder",),
}
"""The elements that each host puts into prompts."""
_INLINE = frozenset({"system-reminder", "system_reminder", "ide_opened_file", "ide_selection"})
"""Elements that hosts also put directly behind the user's words."""
HISTORIES = "specstory"
"""Stands for all hosts, because SpecStory writes histories of several."""
LEADS: Mapping[str, Sequence[str]] = {
    "claude": (
        "A peer session sent a message",
        "Another Claude session sent a message",
        "[SYSTEM NOTIFICATION - NOT USER INPUT]",
    ),
    "codex": ("# AGENTS.md instructions for ",),
}
"""How a host begins the text with which it introduces such an element."""
TRAILS: Mapping[str, Sequence[str]] = {
    "claude": (
        "Full transcript available at:",
        "Read the output file to retrieve the result:",
    ),
}
"""How a host begins a line of its own directly behind such an element."""
CONTEXTS: Mapping[str, tuple[str, str]] = {
    "codex": ("# Context from my IDE setup:", "## My request for Codex:"),
}
"""How an extension of an editor begins the context before a request, and the request."""
_INTERRUPTIONS = frozenset(
    {"[Request interrupted by user]", "[Request interrupted by user for tool use]"}
)
_RECORDS_COMMANDS = ("claude", HISTORIES)
_MAX_LEAD_CHARS = 1_000
_LINE = re.compile(r"\s*+([^\n]*+)")
_MAX_OPEN = 20
"""After this many elements without an end, the rest of a text is left unchanged."""
_COMMAND = re.compile(r"\s*+<(command-(?:name|message|args|contents)|skill-format)>")


def own_words(text: str, host: str) -> str:
    """The user's own words in a prompt, without what the host put into it; "" if nothing is left.
    A slash command is returned as it was typed.
    """
    words = request_in(text, host)
    if words.startswith(QUESTION) or words in _INTERRUPTIONS:
        return ""
    return without_elements(typed_command(words) if host in _RECORDS_COMMANDS else words, host)


def request_in(text: str, host: str) -> str:
    """The user's request in a prompt, without the context that an editor put before it."""
    context, request = CONTEXTS.get(host, ("", ""))
    if context and text.lstrip().startswith(context):
        text = text.partition(request)[2] or text
    return text.strip()


def without_elements(text: str, host: str) -> str:
    """The text without the elements that this host puts into prompts."""
    patterns = _elements(host) if "<" in text else None
    if patterns is None:
        return text.strip()
    at_line, at_once = patterns
    parts, start, unclosed = [], 0, 0
    opening = at_line.search(text)
    while opening and unclosed < _MAX_OPEN:
        closing = f"</{opening[1] or opening[2]}>"
        end = text.find(closing, opening.end())
        unclosed += end < 0
        if end < 0:
            opening = at_line.search(text, opening.end())
            continue
        parts.append(text[start : opening.start()])
        start = _after_trail(text, end + len(closing), host)
        opening = at_once.match(text, start) or at_line.search(text, start)
    return "".join((*parts, text[start:])).strip()


def _after_trail(text: str, start: int, host: str) -> int:
    """The position behind a line of the host's own that follows an element; `start` if none."""
    line = _LINE.match(text, start)
    is_hosts = line is not None and line[1].startswith(tuple(TRAILS.get(host, ())))
    return line.end() if line is not None and is_hosts else start


def typed_command(text: str) -> str:
    """A slash command as the user typed it, if a text is nothing but Claude Code's record of one;
    otherwise the text itself."""
    elements: dict[str, str] = {}
    offset = 0
    while opening := _COMMAND.match(text, offset):
        words, closing, _ = text[opening.end() :].partition(f"</{opening[1]}>")
        if not closing or opening[1] in elements:
            return text
        elements[opening[1]] = words.strip()
        offset = opening.end() + len(words) + len(closing)
    if "command-name" not in elements or text[offset:].strip():
        return text
    return f"{elements['command-name']} {elements.get('command-args', '')}".strip()


@lru_cache(maxsize=32)
def _elements(host: str) -> tuple[re.Pattern[str], re.Pattern[str]] | None:
    """The beginning of an element with the text that introduces it: at the beginning of a line, or,
    for some, anywhere; and directly behind another element. None for a host that puts none into
    prompts."""
    hosts = tuple(INSERTED) if host == HISTORIES else (host,)
    tags = sorted({tag for each in hosts for tag in INSERTED.get(each, ())})
    if not tags:
        return None
    leads = [re.escape(words) for each in hosts for words in LEADS.get(each, ())]
    lead = rf"(?:(?:{'|'.join(leads)})[^<]{{0,{_MAX_LEAD_CHARS}}}+)?+" if leads else ""
    opening = rf"{lead}<({'|'.join(map(re.escape, tags))})(?:\s[^<>]*+)?+>"
    inline = rf"<({'|'.join(tag for tag in tags if tag in _INLINE) or '(?!)'})(?:\s[^<>]*+)?+>"
    return (
        re.compile(rf"^[ \t]*+{opening}|{inline}", re.MULTILINE),
        re.compile(rf"\s*+{opening}|{inline}"),
    )
