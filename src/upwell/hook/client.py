"""The command that an agent's hook runs. It asks the daemon and prints the answer.

Whatever the input and the state of the daemon, it exits with status 0 and prints a JSON object or
nothing. After the deadline, it prints the neutral answer, `{}`. If no daemon is running, it starts
one. If the event is the start of a session, it then waits for the daemon's answer. For a prompt, it
waits less long; for any other event, it prints the neutral answer at once.

The client imports only the cheap part of the stdlib. Importing `socket`, `signal`, `json` or
`typing` would take as long as the whole run. It can be run as a file: `python -I -S client.py
[--home PATH] HOST [EVENT]`. `--home` is used if the home is not in its usual place, because the
agent may be started without `UPWELL_HOME`.
"""

import _signal
import _socket
import os
import select
import sys
import time

if not __package__:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(__file__))))

from upwell import __version__
from upwell.hook.place import (
    DaemonPlace,
    default_home,
    is_private,
    is_starting,
    socket_inode,
    start,
)

PROMPT_SECONDS = 0.2
TOOL_SECONDS = 0.3
"""Hard deadlines for the answer to a prompt and to any other event, counted from the start of
`main()`. `UPWELL_HOOK__PROMPT_MS` and `UPWELL_HOOK__TOOL_MS` change them."""
COLD_SECONDS = 0.8
"""The deadline for a prompt if no daemon is running. `UPWELL_HOOK__COLD_MS` changes it."""
SESSION_SECONDS = 2.0
STARTING_SECONDS = 5.0
"""The deadlines for the start of a session if no daemon is running. `STARTING_SECONDS` applies as
long as the daemon that this client has started is alive, and `SESSION_SECONDS` otherwise.
"""
MARGIN_SECONDS = 0.02
"""The daemon's deadline is this much earlier, so that its answer arrives in time."""
LOOK_SECONDS = 0.02
MAX_EVENT_BYTES = 10_000_000
MAX_SENT_BYTES = 4_000_000
PEEKED_BYTES = 65_536
MAX_HEAD_BYTES = 200
PROTOCOL = "upwell/2"
UNNAMED = "-"
"""Stands for the name of an event that cannot be read, so that the daemon can record the event."""
TAKEN = b"\n"
"""The receipt, which says that the whole answer was written to the host."""
NEUTRAL = b"{}\n"

SESSIONS = frozenset({"SessionStart", "sessionStart", "session.created", "SubagentStart"})
PROMPTS = frozenset(
    """
    UserPromptSubmit BeforeAgent beforeSubmitPrompt chat.message userPromptSubmitted
    """.split()
)
"""The hosts' names for the start of a session and for a prompt."""
EVENTS = (
    SESSIONS
    | PROMPTS
    | frozenset(
        """
    PreToolUse PostToolUse PostToolUseFailure PreCompact Stop SubagentStop SessionEnd
    BeforeTool AfterTool PreCompress AfterAgent beforeShellExecution
    sessionEnd preToolUse postToolUse postToolUseFailure preCompact stop agentStop
    tool.execute.after session.compacting session.idle
    """.split()
    )
)
"""The hosts' names for all events that upwell uses. The client itself answers any other event, so
that no daemon is started for it.
"""
IGNORED_TOOLS = frozenset(
    """
    Write Edit MultiEdit NotebookEdit TodoWrite TodoRead Task Agent ExitPlanMode AskUserQuestion
    Skill SlashCommand apply_patch write_file replace create edit str_replace write patch multiedit
    todowrite todoread update_plan save_memory Delete edit_file create_file insert_edit_into_file
    replace_string_in_file multi_replace_string_in_file edit_notebook_file
    """.split()
)
"""Tools that write, or whose calls reveal nothing about the work. Their events get the neutral
answer.
"""
_COPILOT_VARIABLES = frozenset({"COPILOT_CLI", "COPILOT_HOOK_DIR"})
"""Copilot CLI sets these variables. It also runs the hooks that are configured for VS Code or, in a
project, for Claude Code, but it drops their answers."""
OFF = "UPWELL_OFF"
"""If this variable is set, every event gets the neutral answer. upwell sets it for an agent that it
runs itself, to ask the agent's model a question."""
PLUGIN = "UPWELL_PLUGIN"
"""Set to the plugin's version if the hook is that of a plugin. If the agent's own file has upwell's
hooks too, they answer, and the plugin's give the neutral answer."""
HOOK_FILES = {
    "claude": ("CLAUDE_CONFIG_DIR", ".claude", "settings.json"),
    "codex": ("CODEX_HOME", ".codex", "hooks.json"),
    "copilot": ("COPILOT_HOME", ".copilot", "hooks/upwell.json"),
    "cursor": ("", ".cursor", "hooks.json"),
    "gemini": ("GEMINI_CLI_HOME", "", ".gemini/settings.json"),
}
"""For each agent that has a plugin, the file in which `upwell setup` installs hooks: the variable
that names its folder, the usual folder in the user's home, and the file's name."""
LAUNCHER = b"upwell-hook"
OWN_TOOLS = (
    "mcp__upwell__",
    "mcp__plugin_upwell_upwell__",
    "mcp_upwell_",
    "upwell__",
    "upwell_",
    "upwell-",
)


def main(args: list[str]) -> int:
    """Read an event from stdin and write the answer to stdout. Always returns exit status 0."""
    began = time.monotonic()
    try:
        _set_deadline(began + _seconds("TOOL_MS", TOOL_SECONDS))
        if args[:1] == ["--home"] and args[1:]:
            os.environ["UPWELL_HOME"], args = args[1], args[2:]
        answer, daemon_is_due = _answer(args, began)
        _clear_deadline()
        if _write(answer) and _peer is not None:
            _acknowledge(_peer)
        if daemon_is_due:
            start(DaemonPlace(default_home()))
    except BaseException:
        _clear_deadline()
        _write(NEUTRAL)
    return 0


def _seconds(name: str, default: float) -> float:
    value = os.environ.get("UPWELL_HOOK__" + name, "")
    return int(value) / 1000 if value.isdecimal() else default


_is_written = False
_peer: "_socket.socket | None" = None
"""The connection on which the answer arrived. It stays open for the receipt."""


def _write(answer: bytes) -> bool:
    """Only the first call writes. Returns whether all of it was written."""
    global _is_written
    if _is_written:
        return False
    _is_written = True
    try:
        while answer:
            answer = answer[os.write(1, answer) :]
    except OSError:
        return False
    return True


def _acknowledge(peer: "_socket.socket") -> None:
    """Report that the answer was written, and exit immediately. If the process kept running, the
    host might kill it and discard an answer that was already reported as written.
    """
    try:
        peer.send(TAKEN)
    finally:
        os._exit(0)


def _set_deadline(deadline: float) -> None:
    """When `deadline` is reached, or on SIGTERM, write the neutral answer and exit."""

    def give_up(*_: object) -> None:
        _write(NEUTRAL)
        os._exit(0)

    _signal.signal(_signal.SIGALRM, give_up)
    _signal.signal(_signal.SIGTERM, give_up)
    _signal.setitimer(_signal.ITIMER_REAL, max(0.001, deadline - time.monotonic()))


def _clear_deadline() -> None:
    try:
        _signal.setitimer(_signal.ITIMER_REAL, 0)
    except (OSError, ValueError):
        return


def _answer(args: list[str], began: float) -> tuple[bytes, bool]:
    """Return the answer, and whether a daemon must be started after the answer has been written."""
    tool_seconds = _seconds("TOOL_MS", TOOL_SECONDS)
    event = decoded(_read(began + tool_seconds))
    host = args[0] if args else ""
    name = args[1] if len(args) > 1 else _peek(event, b"hook_event_name")
    if not name and not (event.startswith(b"{") and event.endswith(b"}")):
        name = UNNAMED
    if not _is_eligible(host, name, event) or _is_left_to_settings(host):
        return NEUTRAL, False
    is_prompt = name in PROMPTS or name == UNNAMED
    deadline = began + (_seconds("PROMPT_MS", PROMPT_SECONDS) if is_prompt else tool_seconds)
    _set_deadline(deadline)
    place = DaemonPlace(default_home())
    answer = _ask(place, host, name, event, deadline - MARGIN_SECONDS)
    if answer is not None:
        return answer or NEUTRAL, False
    if is_prompt or name in SESSIONS:
        return _start_and_ask(place, host, name, event, began), False
    return NEUTRAL, True


def _read(deadline: float) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while size <= MAX_EVENT_BYTES and (left := deadline - time.monotonic()) > 0:
        if not select.select([0], [], [], left)[0]:
            return b""
        chunk = os.read(0, 1_048_576)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        size += len(chunk)
    return b""


def decoded(event: bytes) -> bytes:
    """Return an event in UTF-8, without a byte-order mark, and without white space and NULs at its
    ends. Windows programs and PowerShell send events in UTF-16, or with such marks."""
    event = event.removeprefix(b"\xef\xbb\xbf")
    encoding = ""
    if event.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    elif b"\0" in event[:2] and event[:2] != b"\0\0":
        encoding = "utf-16-be" if event[:1] == b"\0" else "utf-16-le"
    if encoding:
        event = event[: len(event) // 2 * 2].decode(encoding, "replace").encode(errors="replace")
    return event.strip(b"\0 \t\r\n")


def _peek(event: bytes, key: bytes) -> str:
    """Find the string under the first `key` in the event without parsing the event. Returns "" if
    there is no plain string."""
    head = event[:PEEKED_BYTES]
    index = head.find(b'"' + key + b'"')
    if index < 0:
        return ""
    rest = head[index + len(key) + 2 :].lstrip(b" \t\r\n")
    if not rest.startswith(b":"):
        return ""
    value = rest[1:].lstrip(b" \t\r\n")
    end = value.find(b'"', 1)
    if not value.startswith(b'"') or not 0 < end <= 200:
        return ""
    return value[1:end].decode(errors="replace")


def _is_left_to_settings(host: str) -> bool:
    """True in a plugin's hook, if the agent's own file has upwell's hooks."""
    if PLUGIN not in os.environ or host not in HOOK_FILES:
        return False
    variable, folder, name = HOOK_FILES[host]
    root = os.environ.get(variable) or os.path.join("~", folder)
    try:
        with open(os.path.join(os.path.expanduser(root), name), "rb") as file:
            return LAUNCHER in file.read(MAX_EVENT_BYTES)
    except OSError:
        return False


def _is_eligible(host: str, name: str, event: bytes) -> bool:
    if (
        os.environ.get(OFF)
        or not (host.isascii() and host.isalnum())
        or (host != "copilot" and os.environ.keys() >= _COPILOT_VARIABLES)
        or (name not in EVENTS and name != UNNAMED)
        or not 2 < len(event) <= MAX_SENT_BYTES
    ):
        return False
    tool = _peek(event, b"tool_name") or _peek(event, b"toolName")
    return tool not in IGNORED_TOOLS and not tool.startswith(OWN_TOOLS)


def _ask(place: DaemonPlace, host: str, name: str, event: bytes, deadline: float) -> bytes | None:
    global _peer
    left = deadline - time.monotonic()
    if left <= 0 or not is_private(place.folder):
        return None
    words = (host, name, f"{left * 1000:.0f}", str(os.getppid()))
    # Wait a little longer than the daemon's own limit, so that a last-moment answer still counts.
    answer, _peer = _exchange(place, words, event, left + MARGIN_SECONDS / 2)
    return answer


def ask(place: DaemonPlace, words: "tuple[str, ...]", body: bytes, seconds: float) -> bytes | None:
    """Send a request to the daemon. `words` are the host, the event's name, the milliseconds left
    and the parent process, and `body` is the event. Returns the answer, or None if there is
    none."""
    answer, peer = _exchange(place, words, body, seconds)
    if peer is not None:
        peer.close()
    return answer


def exchanged(peer: "_socket.socket", words: "tuple[str, ...]", body: bytes) -> bytes | None:
    """Send a request on a connection to the daemon, and return the answer, as `ask()` does. Raises
    OSError if the connection was lost, or no answer arrived in time."""
    head = " ".join((PROTOCOL, __version__, *words, str(len(body)))).encode()
    peer.sendall(head + b"\n" + body)
    return _received(peer)


def _exchange(
    place: DaemonPlace, words: "tuple[str, ...]", body: bytes, seconds: float
) -> "tuple[bytes | None, _socket.socket | None]":
    if not socket_inode(place.socket):
        return None, None
    peer = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        peer.settimeout(seconds)
        peer.connect(place.socket)
        answer = exchanged(peer, words, body)
        if answer is not None:
            return answer, peer
    except OSError:
        pass
    peer.close()
    return None, None


def _received(peer: "_socket.socket") -> bytes | None:
    """Return the body of a reply that consists of `ok LENGTH`, a line break, and a body of that
    length. Returns None for any other reply."""
    reply = b""
    while chunk := peer.recv(65_536):
        reply += chunk
        head, is_complete, body = reply.partition(b"\n")
        if not is_complete and len(head) < MAX_HEAD_BYTES:
            continue
        status, _, length = head.partition(b" ")
        if status != b"ok" or not length.isdigit() or len(body) > int(length):
            return None
        if len(body) == int(length):
            return body
    return None


def _start_and_ask(place: DaemonPlace, host: str, name: str, event: bytes, began: float) -> bytes:
    """Start the daemon, wait until it answers, and return its answer. Returns the neutral answer
    after the deadline, or if the event is a prompt and no daemon is starting.
    """
    daemon = start(place)
    is_prompt = name not in SESSIONS
    deadline = began + (_seconds("COLD_MS", COLD_SECONDS) if is_prompt else STARTING_SECONDS)
    _set_deadline(deadline)
    while deadline - MARGIN_SECONDS - time.monotonic() > LOOK_SECONDS:
        time.sleep(LOOK_SECONDS)
        # A daemon removes its `starting` file once it listens. A check after `_ask()` would miss a
        # daemon that began to listen in between.
        is_coming = bool(daemon) or is_starting(place, STARTING_SECONDS)
        answer = _ask(place, host, name, event, deadline - MARGIN_SECONDS)
        if answer is not None:
            return answer or NEUTRAL
        ended, status = os.waitpid(daemon, os.WNOHANG) if daemon else (0, 0)
        daemon = 0 if ended else daemon
        if is_prompt and (status or not is_coming):
            return NEUTRAL
        if not is_prompt and not daemon:
            deadline = began + SESSION_SECONDS
    return NEUTRAL


if __name__ == "__main__":
    # This skips the interpreter's shutdown, which takes as long as asking the daemon.
    os._exit(main(sys.argv[1:]))
