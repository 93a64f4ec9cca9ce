"""Events of every host, to be filled in with a project, a file in it and a prompt. They are
recordings of real hosts where possible (`recorded/`), else taken from the hosts' documentation and
bundled code of 2026-09."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("recorded")
"""One file for each host that was run: its name and version, then one event per line."""


def recordings(host: str, cwd: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The recorded events of `host` by their names, as if its project were at `cwd`."""
    lines = (RECORDED / f"{host}.jsonl").read_text().splitlines()[1:]
    for line in lines:
        event = json.loads(line.replace("$PROJECT", cwd).replace("$CONFIG", f"{cwd}/.config"))
        yield event["event"], event["payload"]


def recorded(host: str, name: str, cwd: str, **changed: Any) -> dict[str, Any]:
    """The first recorded event of that name, with these keys replaced."""
    return {**next(event for reply, event in recordings(host, cwd) if reply == name), **changed}


def recorded_read(host: str, name: str, cwd: str, reading: str, **changed: Any) -> dict[str, Any]:
    """The recorded event of the tool that reads a file."""
    events = (event for reply, event in recordings(host, cwd) if reply == name)
    return {**next(entry for entry in events if reading in entry.values()), **changed}


@dataclass(frozen=True)
class Documented:
    """The form of one host's events, and the place of the text in its answers. `prompt` is None if
    the host takes no context for prompts. `tool` takes a folder, a file in it and, optionally, the
    name of a tool. The default is the tool that reads files.
    """

    args: Callable[[str], list[str]]
    session: Callable[[str], dict[str, Any]]
    prompt: Callable[[str, str], dict[str, Any]] | None
    tool: Callable[..., dict[str, Any]]
    words: Mapping[str, str]
    text: Callable[[Mapping[str, Any], str], str]


def nested(answer: Mapping[str, Any], event: str) -> str:
    """Claude Code's shape without further keys: Codex drops answers with unknown keys."""
    assert set(answer) == {"hookSpecificOutput"}
    assert set(answer["hookSpecificOutput"]) == {"hookEventName", "additionalContext"}
    assert answer["hookSpecificOutput"]["hookEventName"] == event
    return answer["hookSpecificOutput"]["additionalContext"]


def flat(key: str) -> Callable[[Mapping[str, Any], str], str]:
    def text(answer: Mapping[str, Any], event: str) -> str:
        assert set(answer) == {key}
        return answer[key]

    return text


def claude_like(session: str, cwd: str, event: str, **more: Any) -> dict[str, Any]:
    base = {
        "session_id": session,
        "transcript_path": f"{cwd}/.t/{session}.jsonl",
        "cwd": cwd,
        "permission_mode": "default",
        "hook_event_name": event,
    }
    return {**base, **more}


def claude_read(cwd: str, file: str, tool: str = "Read") -> dict[str, Any]:
    fields = {"session_id": "8f14e45f", "tool_name": tool, "tool_input": {"file_path": file}}
    return recorded_read("claude", "PostToolUse", cwd, "Read", **fields)


def codex(cwd: str, event: str, **more: Any) -> dict[str, Any]:
    return recorded("codex", event, cwd, session_id="0199", **more)


def codex_read(cwd: str, file: str, tool: str = "Bash") -> dict[str, Any]:
    """Codex has no tool that reads files: it runs a shell."""
    fields = {"command": f"sed -n '1,120p' {file}"}
    return codex(cwd, "PostToolUse", tool_name=tool, tool_input=fields)


def gemini(cwd: str, event: str, **more: Any) -> dict[str, Any]:
    return recorded("gemini", event, cwd, session_id="gem-1", **more)


def gemini_read(cwd: str, file: str, tool: str = "read_file") -> dict[str, Any]:
    """The model chooses the form of the path: absolute, or relative as here."""
    fields = {"file_path": file.removeprefix(f"{cwd}/")}
    return gemini(cwd, "AfterTool", tool_name=tool, tool_input=fields)


def cursor(cwd: str, event: str, **more: Any) -> dict[str, Any]:
    base = {
        "conversation_id": "cur-1",
        "generation_id": "g-1",
        "hook_event_name": event,
        "cursor_version": "2026.09.18",
        "workspace_roots": [cwd],
        "user_email": None,
    }
    return {**base, **more}


def cursor_read(cwd: str, file: str, tool: str = "Read") -> dict[str, Any]:
    output = json.dumps({"contents": "x"})
    return cursor(
        cwd, "postToolUse", tool_name=tool, tool_input={"target_file": file}, tool_output=output
    )


def copilot_read(cwd: str, file: str, tool: str = "view") -> dict[str, Any]:
    fields = {"sessionId": "cop-1", "toolName": tool, "toolArgs": {"path": file}}
    return recorded_read("copilot", "postToolUse", cwd, "view", **fields)


def vscode_read(cwd: str, file: str, tool: str = "read_file") -> dict[str, Any]:
    return claude_like(
        "vsc-1",
        cwd,
        "PostToolUse",
        tool_name=tool,
        tool_input={"filePath": file, "startLine": 1, "endLine": 40},
        tool_response="x",
        tool_use_id="t-1",
    )


def opencode_read(cwd: str, file: str, tool: str = "read") -> dict[str, Any]:
    return {"sessionID": "ses_1", "cwd": cwd, "tool_name": tool, "args": {"filePath": file}}


HOSTS: dict[str, Documented] = {
    "claude": Documented(
        args=lambda _: [],
        session=lambda cwd: recorded("claude", "SessionStart", cwd, session_id="8f14e45f"),
        prompt=lambda cwd, text: recorded(
            "claude", "UserPromptSubmit", cwd, session_id="8f14e45f", prompt=text
        ),
        tool=claude_read,
        words={"session": "SessionStart", "prompt": "UserPromptSubmit", "tool": "PostToolUse"},
        text=nested,
    ),
    "codex": Documented(
        args=lambda _: [],
        session=lambda cwd: codex(cwd, "SessionStart"),
        prompt=lambda cwd, text: codex(cwd, "UserPromptSubmit", prompt=text),
        tool=codex_read,
        words={"session": "SessionStart", "prompt": "UserPromptSubmit", "tool": "PostToolUse"},
        text=nested,
    ),
    "gemini": Documented(
        args=lambda _: [],
        session=lambda cwd: gemini(cwd, "SessionStart"),
        prompt=lambda cwd, text: gemini(cwd, "BeforeAgent", prompt=text),
        tool=gemini_read,
        words={"session": "SessionStart", "prompt": "BeforeAgent", "tool": "AfterTool"},
        text=nested,
    ),
    "cursor": Documented(
        args=lambda _: [],
        session=lambda cwd: cursor(cwd, "sessionStart", is_background_agent=False),
        prompt=lambda cwd, text: cursor(cwd, "beforeSubmitPrompt", prompt=text, attachments=[]),
        tool=cursor_read,
        words={},
        text=flat("additional_context"),
    ),
    "copilot": Documented(
        args=lambda kind: [
            {"session": "sessionStart", "prompt": "userPromptSubmitted"}.get(kind, "postToolUse")
        ],
        session=lambda cwd: recorded("copilot", "sessionStart", cwd, sessionId="cop-1"),
        prompt=lambda cwd, text: recorded(
            "copilot", "userPromptSubmitted", cwd, sessionId="cop-1", prompt=text
        ),
        tool=copilot_read,
        words={},
        text=flat("additionalContext"),
    ),
    "vscode": Documented(
        args=lambda _: [],
        session=lambda cwd: claude_like("vsc-1", cwd, "SessionStart", source="new"),
        prompt=None,
        tool=vscode_read,
        words={"session": "SessionStart", "tool": "PostToolUse"},
        text=nested,
    ),
    "opencode": Documented(
        args=lambda kind: [
            {
                "session": "session.created",
                "prompt": "chat.message",
            }.get(kind, "tool.execute.after")
        ],
        session=lambda cwd: {"sessionID": "ses_1", "cwd": cwd, "source": "startup"},
        prompt=lambda cwd, text: {"sessionID": "ses_1", "cwd": cwd, "prompt": text},
        tool=opencode_read,
        words={},
        text=flat("text"),
    ),
}
