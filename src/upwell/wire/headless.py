"""Asks the model of an agent that is installed on this machine, by running the agent without a
terminal.

The agent runs in a folder of its own, which has only the files of the invocation, and gets the
question on stdin. Only one runs at a time. However a run ends, its whole process group is killed;
on Linux, also if this process is killed. A run cannot start another one: in its environment `OFF`
is set, upwell's hooks do nothing there, and nobody learns from sessions in `HEADLESS_FOLDER`.
"""

import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event
from time import monotonic

from upwell.ground.clock import Deadline
from upwell.ground.errors import LlmError, StoreUnwritable
from upwell.ground.files import exclusively
from upwell.ground.llm import MAX_TOKENS, Completion, Invocation
from upwell.ground.secrets.redact import redact
from upwell.ground.text.safe import visible
from upwell.ground.text.tokens import count
from upwell.wire.child import Watcher

OFF = "UPWELL_OFF"
"""The variable that turns off upwell's hooks (`hook/client.py`) and this module."""
MAX_OUTPUT_BYTES = 4_000_000
MAX_ERROR_CHARS = 400
LOOK_SECONDS, LOCK_SECONDS = 0.05, 1.0
LAST_WORDS_SECONDS = 0.5
"""How long to read on after the agent has ended, while a process that it started holds its output
open."""
GRACE_SECONDS = 1.0
"""How long a run that has to stop gets between SIGTERM and SIGKILL."""
_CHUNK_BYTES = 65_536
_OF_A_SESSION = (
    *("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_SESSION_ID"),
    *("CLAUDE_CODE_CHILD_SESSION", "CLAUDE_PROJECT_DIR", "CLAUDE_PLUGIN_ROOT", "CLAUDE_ENV_FILE"),
    *("CODEX_THREAD_ID", "CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_CI"),
    *("GEMINI_CLI", "GEMINI_SESSION_ID", "GEMINI_PROJECT_DIR", "GEMINI_CWD"),
    *("COPILOT_CLI", "COPILOT_HOOK_DIR", "COPILOT_AGENT_SESSION_ID", "COPILOT_PROJECT_DIR"),
    *("OPENCODE", "OPENCODE_PID", "OPENCODE_CLIENT", "PWD", "OLDPWD"),
)
"""Variables by which an agent tells its children that they run in its session. A hook may have
started this process in a session."""

Invoke = Callable[[str, Path], Invocation]
"""Returns how to start the agent, given the system message and the folder in which it runs."""


class HeadlessChat:
    """The model of the agent whose program is at `program`. `invoke()` tells how to start it, and
    `answer()` reads what it printed: the text and the tokens in and out (0 if unknown). `folder` is
    emptied before each run and removed after it; `environment` is what the agent inherits."""

    def __init__(
        self,
        program: str,
        invoke: Invoke,
        answer: Callable[[str], tuple[str, int, int]],
        folder: Path,
        environment: Mapping[str, str],
    ) -> None:
        self._program = program
        self._invoke = invoke
        self._answer = answer
        self._folder = folder
        self._is_off = bool(environment.get(OFF))
        self._inherited = {name: v for name, v in environment.items() if name not in _OF_A_SESSION}
        self._closed = Event()

    def chat(self, prompt: str, deadline: Deadline) -> str:
        return self.complete("", prompt, deadline).text

    def complete(self, system: str, user: str, deadline: Deadline) -> Completion:
        if self._is_off:
            raise LlmError("an agent that upwell runs may not run another one")
        while True:
            try:
                with exclusively(self._folder, min(LOCK_SECONDS, deadline.remaining())):
                    printed = self._run(system, user, deadline)
                    text, tokens_in, tokens_out = self._answer(printed)
                    if not text.strip():
                        raise LlmError(f"{os.path.basename(self._program)} printed no answer")
                    return Completion(
                        text,
                        tokens_in if 0 < tokens_in < MAX_TOKENS else count(system + user),
                        tokens_out if 0 < tokens_out < MAX_TOKENS else count(text),
                    )
            except StoreUnwritable as error:
                if deadline.passed() or self._closed.is_set():
                    raise LlmError("another question to an agent is still open") from error
            except OSError as error:
                raise LlmError(f"the agent cannot be run: {error}") from error

    def close(self) -> None:
        self._closed.set()

    def _run(self, system: str, user: str, deadline: Deadline) -> str:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o700)
        try:
            invocation = self._invoke(system, self._folder)
            for name, content in invocation.files.items():
                path = self._folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content, encoding="utf-8", errors="replace")
            with tempfile.TemporaryFile() as question:
                question.write(user.encode("utf-8", "replace"))
                question.seek(0)
                run = _Run(
                    [self._program, *invocation.args],
                    self._folder,
                    {**self._inherited, **invocation.env, OFF: "1", "PWD": str(self._folder)},
                    question.fileno(),
                )
                return run.output(deadline, self._closed)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


class _Run:
    def __init__(
        self, command: Sequence[str], folder: Path, env: Mapping[str, str], stdin: int
    ) -> None:
        self._name = os.path.basename(command[0])
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._watcher = Watcher()
        self._watcher.watch(self._process.pid)
        self._texts: dict[int, bytearray] = {}

    def output(self, deadline: Deadline, closed: Event) -> str:
        """Return what the agent prints until it ends. Raises LlmError if it failed, was late,
        printed too much, or `closed` was set."""
        process = self._process
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdout as out, process.stderr as err:
            self._texts = {out.fileno(): bytearray(), err.fileno(): bytearray()}
            try:
                self._read(list(self._texts), deadline, closed)
            finally:
                status = self._end()
            printed, complaint = (bytes(text) for text in self._texts.values())
        if status:
            words = (complaint or printed).decode("utf-8", "replace")
            tail = " ".join(redact(visible(words))[0].split())[-MAX_ERROR_CHARS:]
            raise LlmError(f"{self._name} ended with exit code {status}: {tail}")
        return printed.decode("utf-8", "replace")

    def _read(self, open_pipes: list[int], deadline: Deadline, closed: Event) -> None:
        ended_at: float | None = None
        while open_pipes:
            self._check(deadline, closed)
            if ended_at is None and self._has_ended():
                ended_at = monotonic()
            if ended_at is not None and monotonic() - ended_at > LAST_WORDS_SECONDS:
                return
            for pipe in select.select(open_pipes, [], [], LOOK_SECONDS)[0]:
                chunk = os.read(pipe, _CHUNK_BYTES)
                self._texts[pipe] += chunk
                if not chunk:
                    open_pipes.remove(pipe)
        while not self._has_ended():
            self._check(deadline, closed)
            select.select([], [], [], LOOK_SECONDS)

    def _check(self, deadline: Deadline, closed: Event) -> None:
        if closed.is_set():
            raise LlmError(f"{self._name} was stopped")
        if deadline.passed():
            raise LlmError(f"{self._name} did not answer in time")
        if sum(map(len, self._texts.values())) > MAX_OUTPUT_BYTES:
            raise LlmError(f"{self._name} printed more than {MAX_OUTPUT_BYTES:,} bytes")

    def _has_ended(self) -> bool:
        """Whether the agent has ended. It is not reaped, so that its group's number stays taken."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, options) is not None

    def _end(self) -> int:
        """Kill whatever is left of the group, and return the agent's exit status."""
        if not self._has_ended():
            self._signal(signal.SIGTERM)
            until = monotonic() + GRACE_SECONDS
            while not self._has_ended() and monotonic() < until:
                select.select([], [], [], LOOK_SECONDS)
        self._signal(signal.SIGKILL)
        status = self._process.wait()
        self._watcher.release(self._process.pid)
        self._watcher.close()
        return status

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            # macOS answers EPERM for a group that has only zombies.
            return
