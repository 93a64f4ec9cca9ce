"""A raw JSON-RPC peer over stdio: it can send any bytes, and sees every line that comes back.

Stdlib only, one thread, every wait with a deadline. The door tests and the benchmark use it.
"""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
CLIENT = {"name": "peer", "version": "1.0"}
ENVELOPE = {
    f"{PREFIX}protocolVersion": MODERN,
    f"{PREFIX}clientCapabilities": {},
    f"{PREFIX}clientInfo": CLIENT,
}


class Silence(AssertionError):
    """No line arrived within the deadline, or the other side has disconnected."""


class Lexeme(str):
    """A number as it was written."""

    __slots__ = ()


def exact(raw: bytes | str) -> Any:
    """Decode JSON so that equal means equal: number lexemes, key order and repeated keys count."""
    return json.loads(
        raw, parse_int=Lexeme, parse_float=Lexeme, parse_constant=Lexeme, object_pairs_hook=tuple
    )


def member(pairs: Any, *names: str | int) -> Any:
    """Follow a path in a value from `exact`: a name picks a member, a number an item."""
    for name in names:
        pairs = pairs[name] if isinstance(name, int) else dict(pairs)[name]
    return pairs


def text_of(result: Mapping[str, Any], block: int = 0) -> str:
    content = result["content"][block]
    assert content["type"] == "text", content
    return str(content["text"])


def processes(root: int) -> list[int]:
    """`root` and everything below it that is alive, from /proc."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                parents.setdefault(int(parent), []).append(int(entry.name))
    outcome, queue = [], [root]
    while queue:
        pid = queue.pop()
        outcome.append(pid)
        queue += parents.get(pid, [])
    return outcome


def peak_mb(pid: int) -> float:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM:"))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_gone(pids: Iterable[int], deadline: float) -> list[int]:
    """Wait until none of `pids` is alive; return those that still are."""
    end = time.monotonic() + deadline
    left = [pid for pid in pids if alive(pid)]
    while left and time.monotonic() < end:
        select.select([], [], [], 0.01)
        left = [pid for pid in left if alive(pid)]
    return left


class Peer:
    """A child process with a protocol of lines. Use it as a context manager."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        errors: Path | None = None,
        modern: bool = False,
        deadline: float = 20.0,
    ) -> None:
        self.deadline = deadline
        self.modern = modern
        self.errors = errors
        self.lines: list[bytes] = []
        """Every line that was received, in order."""
        self.notifications: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self._buffer = b""
        self._ready: list[bytes] = []
        self._replies: dict[Any, dict[str, Any]] = {}
        self._ids = 0
        with open(errors or os.devnull, "ab") as stderr:
            self.process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=dict(env) if env is not None else None,
                cwd=cwd,
                start_new_session=True,
            )
        assert self.process.stdin
        assert self.process.stdout
        self._out = self.process.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN | select.POLLHUP)

    # -- bytes

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def line(self, deadline: float | None = None) -> bytes:
        """The next line, without its end."""
        end = time.monotonic() + (self.deadline if deadline is None else deadline)
        while not self._ready:
            left = end - time.monotonic()
            if left <= 0 or not self._poll.poll(left * 1000):
                raise Silence(f"no line within the deadline\n{self.stderr()[-2000:]}")
            chunk = os.read(self._out, 1 << 20)
            if not chunk:
                raise Silence(f"the other side closed its output\n{self.stderr()[-2000:]}")
            head, separator, tail = (self._buffer + chunk).rpartition(b"\n")
            if separator:
                self._ready = head.split(b"\n")
            self._buffer = tail
        line = self._ready.pop(0)
        self.lines.append(line)
        return line

    def stderr(self) -> str:
        return self.errors.read_text(errors="replace") if self.errors else ""

    # -- messages

    def send(self, message: Mapping[str, Any]) -> None:
        self.send_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def start(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a request; its id."""
        self._ids += 1
        params = dict(params or {})
        if self.modern:
            params["_meta"] = {**ENVELOPE, **params.get("_meta", {})}
        self.send({"id": self._ids, "method": method, "params": params})
        return self._ids

    def reply(self, id: Any, deadline: float | None = None) -> dict[str, Any]:
        """The whole message that answers `id`. A second answer to one id is an error."""
        end = time.monotonic() + (self.deadline if deadline is None else deadline)
        while id not in self._replies:
            self._take(self.line(max(0.0, end - time.monotonic())))
        return self._replies[id]

    def has_arrived(self, id: Any) -> bool:
        """Whether `id` is answered. Does not wait for it."""
        self.drain(0.001)
        return id in self._replies

    def drain(self, seconds: float) -> None:
        """Collect the lines that arrive within `seconds`, when none is expected."""
        end = time.monotonic() + seconds
        while True:
            try:
                self._take(self.line(max(0.0, end - time.monotonic())))
            except Silence:
                return

    def _take(self, line: bytes) -> None:
        message = json.loads(line.decode("utf-8"))
        assert isinstance(message, dict), f"not a message: {line[:200]!r}"
        assert message.get("jsonrpc") == "2.0", f"not JSON-RPC: {line[:200]!r}"
        if "method" in message:
            stored = self.requests if "id" in message else self.notifications
            stored.append(message)
            return
        assert ("result" in message) != ("error" in message), f"neither or both: {line[:200]!r}"
        assert message["id"] not in self._replies, f"answered twice: {line[:200]!r}"
        assert message["id"] is None or message["id"] <= self._ids, f"never asked: {line[:200]!r}"
        self._replies[message["id"]] = message

    def ask(
        self, method: str, params: Mapping[str, Any] | None = None, deadline: float | None = None
    ) -> dict[str, Any]:
        """Send a request and wait for the whole answer."""
        return self.reply(self.start(method, params), deadline)

    def result(
        self, method: str, params: Mapping[str, Any] | None = None, deadline: float | None = None
    ) -> dict[str, Any]:
        message = self.ask(method, params, deadline)
        assert "result" in message, message
        return dict(message["result"])

    # -- MCP

    def hello(self, deadline: float | None = None) -> dict[str, Any]:
        """`initialize` and its notification, or `server/discover`."""
        if self.modern:
            return self.result("server/discover", {}, deadline)
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}
        result = self.result("initialize", params, deadline)
        self.send({"method": "notifications/initialized"})
        return result

    def tools(self) -> dict[str, dict[str, Any]]:
        """Every tool by name, all pages."""
        collected: dict[str, dict[str, Any]] = {}
        cursor: dict[str, str] = {}
        while True:
            page = self.result("tools/list", cursor)
            for tool in page["tools"]:
                assert tool["name"] not in collected, f"listed twice: {tool['name']}"
                collected[tool["name"]] = tool
            if not page.get("nextCursor"):
                return collected
            cursor = {"cursor": page["nextCursor"]}

    def wait_for_tools(self, *names: str, deadline: float = 20.0) -> dict[str, dict[str, Any]]:
        """Ask until every one of `names` is listed, because servers connect in the background."""
        end = time.monotonic() + deadline
        while True:
            tools = self.tools()
            if set(names) <= set(tools):
                return tools
            if time.monotonic() > end:
                missing = set(names) - set(tools)
                raise Silence(f"never listed: {sorted(missing)}\n{self.stderr()[-2000:]}")
            self.drain(0.05)

    def call(self, tool: str, deadline: float | None = None, /, **arguments: Any) -> dict[str, Any]:
        """The result of a call, which may have `isError`. A JSON-RPC error fails the test."""
        return self.result("tools/call", {"name": tool, "arguments": arguments}, deadline)

    def call_raw(self, tool: str, arguments: str = "{}", deadline: float | None = None) -> bytes:
        """The whole line that answers a call whose arguments are given as raw JSON."""
        self._ids += 1
        meta = f',"_meta":{json.dumps(ENVELOPE)}' if self.modern else ""
        params = f'{{"name":{json.dumps(tool)},"arguments":{arguments}{meta}}}'
        self.send_bytes(
            f'{{"jsonrpc":"2.0","id":{self._ids},"method":"tools/call","params":{params}}}\n'.encode()
        )
        self.reply(self._ids, deadline)
        return self.lines[-1]

    # -- the end

    def tree(self) -> list[int]:
        return processes(self.process.pid)

    def close(self, deadline: float = 10.0) -> int:
        """Close its input and wait; then kill the processes that are left."""
        tree = self.tree()
        assert self.process.stdin
        assert self.process.stdout
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            return self.process.wait(deadline)
        finally:
            for pid in tree:
                if alive(pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            self.process.wait(5)
            self.process.stdout.close()

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        if not self.process.stdout or not self.process.stdout.closed:
            with suppress(subprocess.TimeoutExpired):
                self.close()
