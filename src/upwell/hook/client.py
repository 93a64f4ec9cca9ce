"""What an agent's hook runs: one question to the daemon, one answer, and never in the way.

Exit status 0, a JSON object or nothing on stdout, never a traceback, whatever comes in and whatever
state the daemon is in. When the deadline has passed the answer is the neutral one. Where no daemon
answers, the memory is looked at here (`cold.py`), and the daemon is started for the next event.

Stdlib only, and the cheap part of it: `socket`, `signal`, `json` and `typing` would each cost as
much as the whole run. Runs as a file, too: `python -I -S client.py [--home PATH] HOST [EVENT]`;
`--home` stands in an agent's configuration where the home is not in its usual place, since an agent
may be started without the variable.
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
    Place,
    default_home,
    door_at,
    is_private,
    over_tcp,
    port_and_token,
    proof_of,
)

PROMPT_SECONDS = 0.2
TOOL_SECONDS = 0.3
"""Hard deadlines, from the start of this file to its last byte; `UPWELL_HOOK__PROMPT_MS` and
`UPWELL_HOOK__TOOL_MS` move them."""
MARGIN_SECONDS = 0.02
"""The daemon is told that much less, so that its answer comes in time."""
MAX_EVENT_BYTES = 10_000_000
MAX_SENT_BYTES = 4_000_000
SESSION_SECONDS = 2.0
STARTING_SECONDS = 5.0
"""A session that begins waits that long for a daemon: once, and nothing else is going on then; the
longer time where it has started the daemon itself and sees that it is on its way."""
LOOK_SECONDS = 0.05
PEEKED_BYTES = 65_536
START_AGAIN_SECONDS = 15.0
NEUTRAL = b"{}\n"

SESSIONS = frozenset({"SessionStart", "sessionStart", "session.created", "SubagentStart"})
PROMPTS = frozenset(
    """
    UserPromptSubmit BeforeAgent beforeSubmitPrompt chat.message userPromptSubmitted
    """.split()
)
EVENTS = (
    SESSIONS
    | PROMPTS
    | frozenset(
        """
    PostToolUse PostToolUseFailure PreCompact Stop SubagentStop SessionEnd
    AfterTool PreCompress AfterAgent
    sessionEnd postToolUse postToolUseFailure preCompact stop agentStop
    tool.execute.after session.compacting session.idle
    """.split()
    )
)
"""What any host calls the events that are answered; others end here."""
IGNORED_TOOLS = frozenset(
    """
    Write Edit MultiEdit NotebookEdit TodoWrite TodoRead Task Agent ExitPlanMode AskUserQuestion
    Skill SlashCommand apply_patch write_file replace create edit str_replace write patch multiedit
    todowrite todoread update_plan save_memory Delete edit_file
    """.split()
)
"""Tools that write, or say nothing about what is worked on; `events/` has the whole truth."""
_COPILOTS = frozenset({"COPILOT_CLI", "COPILOT_HOOK_DIR"})
"""Copilot CLI sets these. It runs VS Code's hooks, too, and a project's for Claude Code, and drops
what they say."""
OWN_TOOLS = (
    "mcp__upwell__",
    "mcp__plugin_upwell_upwell__",
    "mcp_upwell_",
    "upwell__",
    "upwell_",
    "upwell-",
)


def main(args: list[str]) -> int:
    """Answer one event from stdin on stdout. Always 0."""
    began = time.monotonic()
    try:
        _answer_by(began + _seconds("TOOL_MS", TOOL_SECONDS))
        if args[:1] == ["--home"] and args[1:]:
            os.environ["UPWELL_HOME"], args = args[1], args[2:]
        answer, asked = _answered(args, began)
        _disarm()
        _say(answer)
        if not asked:
            _start()
    except BaseException:
        _disarm()
        _say(NEUTRAL)
    return 0


def _seconds(name: str, default: float) -> float:
    """A deadline of the environment's, in milliseconds there."""
    said = os.environ.get("UPWELL_HOOK__" + name, "")
    return int(said) / 1000 if said.isdecimal() else default


_said = False


def _say(answer: bytes) -> None:
    """Write the answer, once."""
    global _said
    if _said:
        return
    _said = True
    try:
        while answer:
            answer = answer[os.write(1, answer) :]
    except OSError:
        return


def _answer_by(until: float) -> None:
    """From now on the neutral answer is given when this time has come."""

    def late(*_: object) -> None:
        _say(NEUTRAL)
        os._exit(0)

    _signal.signal(_signal.SIGALRM, late)
    _signal.signal(_signal.SIGTERM, late)
    _signal.setitimer(_signal.ITIMER_REAL, max(0.001, until - time.monotonic()))


def _disarm() -> None:
    try:
        _signal.setitimer(_signal.ITIMER_REAL, 0)
    except (OSError, ValueError):
        return


def _answered(args: list[str], began: float) -> tuple[bytes, bool]:
    """The answer, and whether there is nothing left to do (else a daemon is to be started)."""
    for_tools = _seconds("TOOL_MS", TOOL_SECONDS)
    event = _read(began + for_tools)
    host = args[0] if args else ""
    name = args[1] if len(args) > 1 else _peek(event, b"hook_event_name")
    if not _eligible(host, name, event):
        return NEUTRAL, True
    for_prompts = _seconds("PROMPT_MS", PROMPT_SECONDS)
    until = began + (for_prompts if name in PROMPTS else for_tools)
    _answer_by(until)
    place = Place(default_home())
    answer = _ask(place, host, name, event, until - MARGIN_SECONDS)
    if answer is not None:
        return answer or NEUTRAL, True
    if name in SESSIONS:
        return _ask_again(place, host, name, event, began), True
    from upwell.hook.cold import answer as cold

    return cold(place.home, host, name, event, until - MARGIN_SECONDS) or NEUTRAL, False


def _read(until: float) -> bytes:
    """What stands on stdin; empty when it is too much."""
    chunks: list[bytes] = []
    taken = 0
    while taken <= MAX_EVENT_BYTES and (left := until - time.monotonic()) > 0:
        if not select.select([0], [], [], left)[0]:
            return b""
        chunk = os.read(0, 1_048_576)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        taken += len(chunk)
    return b""


def _peek(event: bytes, key: bytes) -> str:
    """The text under the first such key, without parsing; "" when it is not plain to see."""
    head = event[:PEEKED_BYTES]
    at = head.find(b'"' + key + b'"')
    if at < 0:
        return ""
    rest = head[at + len(key) + 2 :].lstrip(b" \t\r\n")
    if not rest.startswith(b":"):
        return ""
    value = rest[1:].lstrip(b" \t\r\n")
    end = value.find(b'"', 1)
    if not value.startswith(b'"') or not 0 < end <= 200:
        return ""
    return value[1:end].decode(errors="replace")


def _eligible(host: str, name: str, event: bytes) -> bool:
    """Is it worth a question? What is ruled out here is ruled out by the daemon, too."""
    if (
        not (host.isascii() and host.isalnum())
        or (host != "copilot" and os.environ.keys() >= _COPILOTS)
        or name not in EVENTS
        or not 2 < len(event) <= MAX_SENT_BYTES
    ):
        return False
    tool = _peek(event, b"tool_name") or _peek(event, b"toolName")
    return tool not in IGNORED_TOOLS and not tool.startswith(OWN_TOOLS)


def _ask(place: Place, host: str, name: str, event: bytes, until: float) -> bytes | None:
    """The daemon's answer; None where no daemon gives one."""
    left = until - time.monotonic()
    if left <= 0 or not is_private(place.folder):
        return None
    return ask(place, (host, name, f"{left * 1000:.0f}", str(os.getppid())), event, left)


def ask(place: Place, words: "tuple[str, ...]", body: bytes, seconds: float) -> bytes | None:
    """What the daemon answers to a request: host, event, milliseconds left, parent; and the event.
    None where no daemon gives an answer."""
    if not door_at(place.socket):
        return None
    request = " ".join(("upwell/1", __version__, *words, str(len(body)))).encode() + b"\n" + body
    tcp = over_tcp()
    peer = _socket.socket(_socket.AF_INET if tcp else _socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        peer.settimeout(seconds)
        if tcp:
            request = _introduced(peer, place) + request
        else:
            peer.connect(place.socket)
        peer.sendall(request)
        return _received(peer)
    except OSError:
        return None
    finally:
        peer.close()


def _introduced(peer: "_socket.socket", place: Place) -> bytes:
    """Connect on loopback, and make sure that nobody else has taken the port: who answers must
    know the token before it is told anything. Gives the line that says we know it, too."""
    port, token = port_and_token(place.socket)
    nonce, answer = os.urandom(16).hex(), b""
    peer.connect(("127.0.0.1", port))
    peer.sendall(nonce.encode() + b"\n")
    while not answer.endswith(b"\n") and len(answer) < 100:
        chunk = peer.recv(100)
        if not chunk:
            break
        answer += chunk
    if answer != proof_of(token, "daemon", nonce):
        raise OSError("somebody else listens there")
    return proof_of(token, "client", nonce)


def _ask_again(place: Place, host: str, name: str, event: bytes, began: float) -> bytes:
    """Start the daemon and wait for its answer."""
    until = began + STARTING_SECONDS
    _answer_by(until)
    coming = _start()
    while True:
        if not coming or os.waitpid(coming, os.WNOHANG)[0]:
            coming, until = 0, began + SESSION_SECONDS
        left = until - MARGIN_SECONDS - time.monotonic()
        if left <= LOOK_SECONDS:
            return NEUTRAL
        time.sleep(LOOK_SECONDS)
        answer = _ask(place, host, name, event, time.monotonic() + left)
        if answer is not None:
            return answer


def _received(peer: "_socket.socket") -> bytes | None:
    """`ok LENGTH`, a line break and as many bytes; None for anything else."""
    reply = b""
    while chunk := peer.recv(65_536):
        reply += chunk
    head, _, body = reply.partition(b"\n")
    status, _, length = head.partition(b" ")
    if status != b"ok" or not length.isdigit() or len(body) != int(length):
        return None
    return body


def _start() -> int:
    """Start the daemon, unless somebody has just done so. Does not wait for it. Gives the process,
    0 for none."""
    place = Place(default_home())
    if not os.path.isdir(place.folder):
        os.mkdir(place.folder, 0o700)
    if not is_private(place.folder):
        return 0
    try:
        age = time.time() - os.lstat(place.starting).st_mtime
        if 0 <= age < START_AGAIN_SECONDS:
            return 0
        os.unlink(place.starting)
    except FileNotFoundError:
        pass
    os.close(os.open(place.starting, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = f"import sys; sys.path.append({root!r}); from upwell.__main__ import main; main()"
    nowhere = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)] + [
        (os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)
    ]
    command = [sys.executable, "-I", "-c", code, "daemon", "run", "--from-hook"]
    environment = {**os.environ, "UPWELL_HOME": place.home}
    return os.posix_spawn(sys.executable, command, environment, file_actions=nowhere, setsid=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
