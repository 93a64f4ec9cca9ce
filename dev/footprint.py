"""Counts what upwell runs for one call, one event and one command: files, functions, modules.

    .venv/bin/python dev/footprint.py [--files CASE]

The cases: a call through the gateway and through the wrapper on which upwell does nothing, a hook's
event that gets a memory and one that gets none, and `upwell remember`. Each is run three times
before it is counted, in the process that does the work (gateway, wrapper, daemon, command). A
function counts once; the bodies of modules and classes do not count. `--files` lists the files of a
case, each with its functions.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_OPTIMIZED
from pathlib import Path
from threading import Thread
from types import CodeType

import upwell
from upwell.hook.control import daemon_at

SRC = Path(upwell.__file__).parent
SERVER = Path(__file__).parents[1] / "benchmarks" / "gateway" / "upstream.py"
WARM = 3
NOTE = (
    "Deploys of the billing service fail unless the queue worker is stopped first: run "
    "scripts/drain.sh, wait for zero, then deploy"
)
SETTLED = 0.8
"""Decisions are written half a second later."""
PATIENCE = 20.0

Taken = dict[str, list[str]]
"""The functions that ran, by file."""


def traced(out: Path, arguments: list[str]) -> None:
    """Run upwell here; write what ran to `out` at the end and whenever `out` is gone, which starts
    the count anew. (Signals would not do: the wrapper passes them on to its server.)"""
    seen: set[CodeType] = set()
    monitoring = sys.monitoring
    tool = monitoring.PROFILER_ID
    monitoring.use_tool_id(tool, "footprint")

    def started(code: CodeType, _offset: int) -> object:
        if code.co_flags & CO_OPTIMIZED:
            seen.add(code)
        return monitoring.DISABLE

    def write() -> None:
        taken: defaultdict[str, set[str]] = defaultdict(set)
        for code in list(seen):
            path = Path(code.co_filename)
            if path.is_relative_to(SRC) and not code.co_name.startswith("<"):
                taken[str(path.relative_to(SRC))].add(code.co_qualname)
        modules = [name for name in sys.modules if name.split(".")[0] == "upwell"]
        lists = {path: sorted(names) for path, names in sorted(taken.items())}
        fresh = out.with_suffix(".new")
        fresh.write_text(json.dumps({"taken": lists, "modules": len(modules)}), encoding="utf-8")
        fresh.rename(out)
        seen.clear()
        monitoring.restart_events()

    def watch() -> None:
        while True:
            time.sleep(0.02)
            if not out.exists():
                write()

    monitoring.register_callback(tool, monitoring.events.PY_START, started)
    monitoring.set_events(tool, monitoring.events.PY_START)
    Thread(target=watch, daemon=True).start()
    from upwell.__main__ import main

    sys.argv = ["upwell", *arguments]
    try:
        main()
    finally:
        write()


class Bench:
    """A home with one memory and one server, and processes in it that tell what they ran."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.project = folder, folder / "project"
        (self.project / ".git").mkdir(parents=True)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("UPWELL_")}
        self.environment = {
            **inherited,
            "HOME": str(folder),
            "UPWELL_HOME": str(folder / "home"),
            "OPENBLAS_NUM_THREADS": "1",
        }
        self.upwell("remember", NOTE)
        self.upwell("add", "up", "--", sys.executable, str(SERVER))

    def command(self, name: str, *arguments: str) -> list[str]:
        return [sys.executable, __file__, "--child", str(self.folder / name), *arguments]

    def upwell(self, *arguments: str, stdin: str = "") -> str:
        program = [sys.executable, "-m", "upwell", *arguments]
        return self._run(program, stdin)

    def _run(self, program: list[str], stdin: str = "") -> str:
        done = subprocess.run(
            program, env=self.environment, cwd=self.project, input=stdin, text=True,
            capture_output=True, check=True, timeout=PATIENCE,
        )  # fmt: skip
        return done.stdout

    def remembering(self) -> dict[str, object]:
        self._run(self.command("remember", "remember", "The queue is drained before a deploy"))
        return self.result("remember")

    def result(self, name: str) -> dict[str, object]:
        return dict(json.loads((self.folder / name).read_text(encoding="utf-8")))

    def last_step(self, name: str, act: Iterator[None]) -> dict[str, object]:
        """What the process called `name` ran for the last step of `act`."""
        for _ in range(WARM):
            next(act)
        time.sleep(SETTLED)
        self.count_anew(name)
        next(act)
        time.sleep(SETTLED)
        self.count_anew(name)
        return self.result(name)

    def count_anew(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)
        self.wait_for(name)

    def wait_for_daemon(self) -> None:
        """Until it answers: a hook that finds none starts one of its own."""
        end = time.monotonic() + PATIENCE
        while not ((daemon := daemon_at(self.environment["UPWELL_HOME"])) and daemon.answers):
            if time.monotonic() > end:
                raise SystemExit("the daemon does not answer")
            time.sleep(0.05)

    def wait_for(self, name: str) -> None:
        end = time.monotonic() + PATIENCE
        while not (self.folder / name).exists() and time.monotonic() < end:
            time.sleep(0.02)

    @contextmanager
    def started(self, name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            self.command(name, *arguments), env=self.environment, cwd=self.project, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.stdin.close()  # type: ignore[union-attr]
            process.terminate()
            process.wait(PATIENCE)

    def calls(self, process: subprocess.Popen[str], tool: str) -> Iterator[None]:
        """Calls of `tool`, one at a step, after the handshake."""
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "footprint", "version": "1"},
        }
        ask(process, 0, "initialize", hello)
        tell(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        for number in range(1, 100):
            ask(process, number, "tools/call", {"name": tool, "arguments": {}})
            yield

    def prompts(self, text: str) -> Iterator[None]:
        for number in range(100):
            event = {
                "hook_event_name": "UserPromptSubmit",
                "session_id": f"s{number}",
                "cwd": str(self.project),
                "prompt": text,
            }
            answer = self.upwell("hook", "claude", stdin=json.dumps(event))
            if ("drain.sh" in answer) != ("deploy" in text):
                raise SystemExit(f"the prompt {text!r} was answered with {answer!r}")
            yield


def tell(process: subprocess.Popen[str], message: object) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()


def ask(process: subprocess.Popen[str], number: int, method: str, params: object) -> object:
    assert process.stdout is not None
    tell(process, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    for line in process.stdout:
        message = json.loads(line)
        if message.get("id") == number and "method" not in message:
            if "result" not in message:
                raise SystemExit(f"{method}: {message}")
            return message["result"]
    raise SystemExit(f"{method}: no answer")


def cases(bench: Bench, tool: str) -> Iterator[tuple[str, dict[str, object]]]:
    yield "remember", bench.remembering()
    with bench.started("call", "serve") as process:
        yield "call", bench.last_step("call", bench.calls(process, f"up__{tool}"))
    with bench.started("daemon", "daemon", "run"):
        bench.wait_for_daemon()
        quiet, told = "thanks, that works", "why does the deploy of the billing service fail?"
        yield "event without a memory", bench.last_step("daemon", bench.prompts(quiet))
        yield "event with a memory", bench.last_step("daemon", bench.prompts(told))
        command = ["wrap", "--", sys.executable, str(SERVER)]
        with bench.started("wrapper", *command) as process:
            calls = bench.calls(process, tool)
            yield "wrapped call: wrapper", bench.last_step("wrapper", calls)
            yield "wrapped call: daemon", bench.last_step("daemon", calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", metavar="CASE", default="")
    parser.add_argument("--tool", default="say", help="the server's tool to call")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="upwell-footprint-") as folder:
        for name, result in cases(Bench(Path(folder)), options.tool):
            taken: Taken = dict(result["taken"])  # type: ignore[call-overload]
            functions = sum(len(names) for names in taken.values())
            modules = result["modules"]
            print(f"{name:24}{len(taken):4} files {functions:4} functions {modules:4} modules")
            if name == options.files:
                for path, names in taken.items():
                    print(f"    {path}: {', '.join(names)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        traced(Path(sys.argv[2]), sys.argv[3:])
    else:
        main()
