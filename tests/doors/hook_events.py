"""Events of every host as their documentation and bundles show them (2026-09), to be filled in with
a project, a file in it and a prompt. Those of Codex CLI (0.169.0), Gemini CLI (0.61.0) and OpenCode
(1.18.33, by our plugin) are what the hosts themselves sent, with other paths and ids."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Documented:
    """How one host tells of its events, and where its answers hold the text. `prompt` None: the
    host takes no context for prompts."""

    args: Callable[[str], list[str]]
    session: Callable[[str], dict[str, Any]]
    prompt: Callable[[str, str], dict[str, Any]] | None
    tool: Callable[[str, str], dict[str, Any]]
    write: Callable[[str, str], dict[str, Any]]
    words: Mapping[str, str]
    text: Callable[[Mapping[str, Any], str], str]


def nested(answer: Mapping[str, Any], event: str) -> str:
    """Claude Code's shape, and nothing beside it: Codex drops answers with unknown keys."""
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
    return claude_like(
        "8f14e45f",
        cwd,
        "PostToolUse",
        tool_name=tool,
        tool_input={"file_path": file},
        tool_response={"type": "text", "file": {"filePath": file, "content": "x\n", "numLines": 1}},
        tool_use_id="toolu_01",
        duration_ms=12,
    )


def codex(cwd: str, event: str, **more: Any) -> dict[str, Any]:
    base = {
        "session_id": "0199",
        "turn_id": "01a20017-1a8b-7e61-aba5-bd6f4bd5dc13",
        "transcript_path": f"{cwd}/.t/rollout-2026-11-21T21-50-43-0199.jsonl",
        "cwd": cwd,
        "hook_event_name": event,
        "model": "gpt-5.4-codex",
        "permission_mode": "bypassPermissions",
    }
    return {**base, **more}


def codex_read(cwd: str, file: str, tool: str = "Bash") -> dict[str, Any]:
    """Codex has no tool that reads files: it runs a shell."""
    return codex(
        cwd,
        "PostToolUse",
        tool_name=tool,
        tool_input={"command": f"sed -n '1,120p' {file}"},
        tool_response="x\n",
        tool_use_id="call_1",
    )


def codex_begins(cwd: str, source: str = "startup") -> dict[str, Any]:
    """No turn has begun yet."""
    event = codex(cwd, "SessionStart", source=source)
    return {key: value for key, value in event.items() if key != "turn_id"}


def gemini(cwd: str, event: str, **more: Any) -> dict[str, Any]:
    base = {
        "session_id": "gem-1",
        "transcript_path": f"{cwd}/.t/session-2026-11-21T21-56-1daf4fd8.jsonl",
        "cwd": cwd,
        "hook_event_name": event,
        "timestamp": "2026-11-21T21:56:55.747Z",
    }
    return {**base, **more}


def gemini_read(cwd: str, file: str, tool: str = "read_file") -> dict[str, Any]:
    """The path is the model's: absolute, or as here below the folder."""
    reply = {"llmContent": "x", "returnDisplay": ""}
    given = {"file_path": file.removeprefix(f"{cwd}/")}
    return gemini(cwd, "AfterTool", tool_name=tool, tool_input=given, tool_response=reply)


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
    return {
        "sessionId": "cop-1",
        "timestamp": 1_758_000_000_000,
        "cwd": cwd,
        "toolName": tool,
        "toolArgs": {"path": file},
        "toolResult": {"resultType": "success", "textResultForLlm": "x"},
    }


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
        session=lambda cwd: claude_like("8f14e45f", cwd, "SessionStart", source="startup"),
        prompt=lambda cwd, said: claude_like("8f14e45f", cwd, "UserPromptSubmit", prompt=said),
        tool=claude_read,
        write=lambda cwd, file: claude_read(cwd, file, "Write"),
        words={"session": "SessionStart", "prompt": "UserPromptSubmit", "tool": "PostToolUse"},
        text=nested,
    ),
    "codex": Documented(
        args=lambda _: [],
        session=codex_begins,
        prompt=lambda cwd, said: codex(cwd, "UserPromptSubmit", prompt=said),
        tool=codex_read,
        write=lambda cwd, file: codex_read(cwd, file, "apply_patch"),
        words={"session": "SessionStart", "prompt": "UserPromptSubmit", "tool": "PostToolUse"},
        text=nested,
    ),
    "gemini": Documented(
        args=lambda _: [],
        session=lambda cwd: gemini(cwd, "SessionStart", source="startup"),
        prompt=lambda cwd, said: gemini(cwd, "BeforeAgent", prompt=said),
        tool=gemini_read,
        write=lambda cwd, file: gemini_read(cwd, file, "write_file"),
        words={"session": "SessionStart", "prompt": "BeforeAgent", "tool": "AfterTool"},
        text=nested,
    ),
    "cursor": Documented(
        args=lambda _: [],
        session=lambda cwd: cursor(cwd, "sessionStart", is_background_agent=False),
        prompt=lambda cwd, said: cursor(cwd, "beforeSubmitPrompt", prompt=said, attachments=[]),
        tool=cursor_read,
        write=lambda cwd, file: cursor_read(cwd, file, "Write"),
        words={},
        text=flat("additional_context"),
    ),
    "copilot": Documented(
        args=lambda kind: [{"session": "sessionStart"}.get(kind, "postToolUse")],
        session=lambda cwd: {"sessionId": "cop-1", "timestamp": 1, "cwd": cwd, "source": "new"},
        prompt=None,
        tool=copilot_read,
        write=lambda cwd, file: copilot_read(cwd, file, "edit"),
        words={},
        text=flat("additionalContext"),
    ),
    "vscode": Documented(
        args=lambda _: [],
        session=lambda cwd: claude_like("vsc-1", cwd, "SessionStart", source="new"),
        prompt=None,
        tool=vscode_read,
        write=lambda cwd, file: vscode_read(cwd, file, "replace_string_in_file"),
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
        prompt=lambda cwd, said: {"sessionID": "ses_1", "cwd": cwd, "prompt": said},
        tool=opencode_read,
        write=lambda cwd, file: opencode_read(cwd, file, "edit"),
        words={},
        text=flat("text"),
    ),
}
