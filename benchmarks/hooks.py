"""Measures the cost of a hook: the client's CPU and wall time, and the time of a hook over HTTP.

    .venv/bin/python benchmarks/hooks.py [--runs 40] [--memories 2000] [--peer PYTHON]

Cases take turns, so that a busy minute falls on all of them. `--peer` is a Python in whose
environment memtomem-stm is installed; its `mms hook` then takes part. CPU is the user + system time
of the process that the agent starts, including its children; the daemon's own CPU time is reported
separately.
"""

import argparse
import http.client
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from upwell.hook import client
from upwell.hook.control import daemon_at, end
from upwell.hook.place import DaemonPlace

CLIENT = [sys.executable, "-I", "-S", str(Path(client.__file__))]
PORT = 47_613
TICK = os.sysconf("SC_CLK_TCK")
Run = tuple[float, float, bytes]
"""CPU and wall milliseconds, and the answer."""


class Home:
    """A home with memories, in a folder of its own."""

    def __init__(self, folder: Path, memories: int) -> None:
        self.root, self.project = folder / "home", folder / "project"
        (self.project / ".git").mkdir(parents=True)
        (folder / "user").mkdir()
        self.root.mkdir(mode=0o700)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("UPWELL_")}
        self.environment = {
            **inherited,
            "HOME": str(folder / "user"),
            "UPWELL_HOME": str(self.root),
            "OPENBLAS_NUM_THREADS": "1",
        }
        self.place = DaemonPlace(str(self.root))
        listed = folder / "memories.jsonl"
        listed.write_text("\n".join(json.dumps(self._memory(n)) for n in range(memories)))
        self.upwell("import", str(listed))
        (self.root / "config.toml").write_text(f"hook.port = {PORT}\n")

    def _memory(self, number: int) -> dict[str, object]:
        place = f"{number * 7919 % 10_007}"
        return {
            "id": f"m{number}",
            "text": f"Gauge {place} of the tidal station reports in unit u{number % 97} since "
            f"release r{number % 53}; its calibration was moved to table t{number % 211}",
            "paths": [f"src/station{number % 400}/gauge_{number}.py"],
            "project": str(self.project),
        }

    def upwell(self, *args: str) -> None:
        command = [sys.executable, "-P", "-m", "upwell", *args]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"upwell {' '.join(args)}: {done.stderr}")

    def prompt(self, number: int) -> bytes:
        place = number * 7919 % 10_007
        unit, table = f"u{number % 97}", f"t{number % 211}"
        question = f"Is gauge {place} in {unit} still calibrated by table {table}?"
        return self._event("UserPromptSubmit", number, prompt=question)

    def read(self, number: int) -> bytes:
        file = self.project / f"src/station{number % 400}/gauge_{number}.py"
        reply = {"type": "text", "file": {"content": "x = 1\n" * 1_300}}
        return self._event(
            "PostToolUse",
            number,
            tool_name="Read",
            tool_input={"file_path": str(file)},
            tool_response=reply,
        )

    def written(self, number: int) -> bytes:
        return self.read(number).replace(b'"Read"', b'"Write"')

    def _event(self, name: str, number: int, **fields: object) -> bytes:
        base = {"session_id": f"bench-{number}", "cwd": str(self.project), "hook_event_name": name}
        return json.dumps({**base, **fields}).encode()

    def daemon_cpu_ms(self) -> float:
        daemon = daemon_at(str(self.root))
        if daemon is None:
            return 0.0
        fields = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / TICK

    def stop(self) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and os.path.exists(self.place.starting):
            time.sleep(0.05)
        if daemon := daemon_at(str(self.root)):
            end(daemon)


def run(command: list[str], event: bytes, environment: Mapping[str, str]) -> Run:
    """One process, as an agent starts it."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, input=event, capture_output=True, env=environment)
    wall = (time.perf_counter() - began) * 1000
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used * 1000, wall, done.stdout


def over_http(connection: http.client.HTTPConnection, token: str, event: bytes) -> Run:
    """One hook that is an HTTP request."""
    began = time.perf_counter()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", "/hook/claude", event, headers)
    body = connection.getresponse().read()
    return 0.0, (time.perf_counter() - began) * 1000, body


def in_turns(cases: Mapping[str, Callable[[int], Run]], runs: int) -> dict[str, list[Run]]:
    collected: dict[str, list[Run]] = {name: [] for name in cases}
    for number in range(runs):
        for name, case in cases.items():
            collected[name].append(case(number))
    return collected


def shown(name: str, runs: list[Run], base: float) -> str:
    cpu = sorted(run[0] for run in runs)
    wall = sorted(run[1] for run in runs)
    answered = sum(1 for run in runs if len(run[2]) > 10)
    middle = statistics.median(cpu)
    against = f"{middle / base:.2f}" if middle and base else ""
    p95 = wall[min(len(wall) - 1, int(len(wall) * 0.95))]
    return (
        f"| {name} | {middle:.1f} | {against} | {wall[0]:.1f} | {statistics.median(wall):.1f} "
        f"| {p95:.1f} | {answered}/{len(runs)} |"
    )


def cold(home: Home, number: int) -> Run:
    """The first prompt of a home: the hook starts the daemon and waits for its answer."""
    home.stop()
    result = run([*CLIENT, "claude"], home.prompt(number), home.environment)
    home.stop()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--memories", type=int, default=2_000)
    parser.add_argument("--peer", type=Path, help="a Python with memtomem-stm")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Home(Path(folder), options.memories)
        home.upwell("daemon", "start")
        try:
            measure(home, options.runs, options.peer)
        finally:
            home.stop()


def measure(home: Home, runs: int, peer: Path | None) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
    token_file = home.root / "token"
    deadline = time.monotonic() + 20
    while not token_file.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    token = token_file.read_text().strip()
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    quick, env = [*CLIENT, "claude"], home.environment
    cases: dict[str, Callable[[int], Run]] = {
        "python -c pass": lambda n: run([sys.executable, "-c", "pass"], b"", env),
        "python -I -S -c pass": lambda n: run([sys.executable, "-I", "-S", "-c", "pass"], b"", env),
        "prompt, warm": lambda n: run(quick, home.prompt(n), env),
        "tool, warm": lambda n: run(quick, home.read(1_000 + n), env),
        "not eligible (Write)": lambda n: run(quick, home.written(n), env),
        "prompt over HTTP": lambda n: over_http(connection, token, home.prompt(500 + n)),
        "tool over HTTP": lambda n: over_http(connection, token, home.read(1_500 + n)),
        "not eligible over HTTP": lambda n: over_http(connection, token, home.written(n)),
    }
    if peer:
        mms = str(peer.with_name("mms"))
        cases["memtomem-stm: mms hook"] = lambda n: run([mms, "hook"], home.read(n), env)
    in_turns({name: case for name, case in cases.items() if name != "memtomem-stm"}, 1)
    before = home.daemon_cpu_ms()
    result = in_turns({name: shifted(case) for name, case in cases.items()}, runs)
    used = (home.daemon_cpu_ms() - before) / (4 * runs)
    result["prompt, cold (starts the daemon)"] = [cold(home, 200 + n) for n in range(min(10, runs))]
    base = statistics.median(sample[0] for sample in result["python -c pass"])
    print("| case | CPU ms p50 | × python | wall min | wall p50 | wall p95 | said something |")
    print("|---|---|---|---|---|---|---|")
    for name, measured in result.items():
        print(shown(name, measured, base))
    home.upwell("daemon", "start")
    state = daemon_at(str(home.root))
    rss = int(state.state.get("rss_bytes", 0)) / 1e6 if state else 0
    print(f"\nthe daemon: {used:.1f} ms CPU an event, {rss:.0f} MB resident after the start")


def shifted(case: Callable[[int], Run]) -> Callable[[int], Run]:
    """A case that leaves out its first event, which the warm-up has used."""
    return lambda number: case(number + 1)


if __name__ == "__main__":
    main()
