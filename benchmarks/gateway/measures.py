"""The measurements. Each function starts a contender afresh and returns figures by name.

CPU is the user + system time of everything below the client, including the server behind, so the
difference from `direct` is the cost of the contender.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from contenders import KEPT, PASSING, ROOT, BackgroundWork, Contender
from http_peer import HttpPeer, free_port, wait_until_open
from processes import clean, cpu_ms, rss_mb

sys.path.insert(0, str(ROOT))

from tests.doors.peer import Peer, Silence, processes

SERVER = [sys.executable, str(Path(__file__).parent / "upstream.py")]
REFERENCE = [sys.executable, str(ROOT / "tests/doors/conformance/reference.py")]
WARM_UP_CALLS = 30
HTTP_WARM_UP_CALLS = 10
IN_FLIGHT = 32
MB, GB = 1_000_000, 1_073_741_824
Figures = dict[str, float]


@dataclass(frozen=True)
class Sizes:
    """The number of repetitions in one round."""

    calls: int = 200
    in_flight_calls: int = 640
    http_calls: int = 40
    large_calls: int = 5


@contextmanager
def connected(
    contender: Contender, server: Sequence[str], folder: Path, tool: str, config: str = ""
) -> Iterator[Peer]:
    """A client on stdio, once the tool is listed."""
    assert contender.stdio is not None
    folder.mkdir(parents=True, exist_ok=True)
    command, env = contender.stdio(server, folder, config)
    with Peer(command, env=env, cwd=folder, errors=folder / "stderr", deadline=120) as peer:
        peer.hello()
        peer.wait_for_tools(contender.prefix + tool, deadline=60)
        yield peer


def said(peer: Peer, tool: str, text: str) -> None:
    result = peer.call(tool, text=text)
    if result.get("isError") or result["content"][0]["text"] != text:
        raise Silence(f"{tool} answered {json.dumps(result)[:200]}")


def start_up(contender: Contender, server: Sequence[str], folder: Path) -> Figures:
    """Time to the `initialize` reply, and until the server's tools are listed."""
    assert contender.stdio is not None
    folder.mkdir(parents=True, exist_ok=True)
    command, env = contender.stdio(server, folder, "")
    began = time.perf_counter()
    with Peer(command, env=env, cwd=folder, errors=folder / "stderr", deadline=60) as peer:
        peer.hello()
        hello = (time.perf_counter() - began) * 1000
        cpu = cpu_ms(processes(peer.process.pid))
        peer.wait_for_tools(f"{contender.prefix}read_text_file", deadline=60)
        ready = (time.perf_counter() - began) * 1000
        return {"start_ms": hello, "start_cpu_ms": cpu, "ready_ms": ready}


def small(contender: Contender, folder: Path, sizes: Sizes) -> Figures:
    """Small calls one after another, then many at once."""
    tool = f"{contender.prefix}say"
    with connected(contender, SERVER, folder, "say") as peer:
        for n in range(WARM_UP_CALLS):
            said(peer, tool, f"warm {n}")
        tree = processes(peer.process.pid)
        helpers = contender.helpers(folder)
        before, walls = cpu_ms(tree), []
        before_helpers, before_first = cpu_ms(helpers), cpu_ms(tree[:1])
        for n in range(sizes.calls):
            began = time.perf_counter()
            said(peer, tool, f"call {n}")
            walls.append((time.perf_counter() - began) * 1000)
        cuts = statistics.quantiles(walls, n=20)
        figures = {
            "call_cpu_ms": (cpu_ms(tree) - before) / sizes.calls,
            "call_first_cpu_ms": (cpu_ms(tree[:1]) - before_first) / sizes.calls,
            "call_helpers_cpu_ms": (cpu_ms(helpers) - before_helpers) / sizes.calls,
            "call_p50_ms": cuts[9],
            "call_p95_ms": cuts[18],
            "rss_mb": rss_mb(peer.process.pid),
        }
        before = cpu_ms(tree)
        seconds = at_once(peer, tool, sizes.in_flight_calls, IN_FLIGHT)
        figures["at_once_per_s"] = sizes.in_flight_calls / seconds
        figures["at_once_cpu_ms"] = (cpu_ms(tree) - before) / sizes.in_flight_calls
        return figures


def at_once(peer: Peer, tool: str, calls: int, most: int) -> float:
    """Seconds for this many calls, with at most `most` of them under way at any time."""
    began, request_ids = time.perf_counter(), deque[int]()
    for n in range(calls):
        if len(request_ids) == most:
            _answered(peer, request_ids.popleft())
        params = {"name": tool, "arguments": {"text": f"call {n}"}}
        request_ids.append(peer.start("tools/call", params))
    for identity in request_ids:
        _answered(peer, identity)
    return time.perf_counter() - began


def _answered(peer: Peer, identity: int) -> None:
    result = peer.reply(identity).get("result", {})
    if result.get("isError", "content" not in result):
        raise Silence(f"a call was answered {json.dumps(result)[:200]}")


def official(contender: Contender, folder: Path, sizes: Sizes) -> Figures:
    """Many small calls at once to a server that was written with the official SDK. This includes
    the throughput of a real server, while the server behind `small` takes next to no time.
    """
    tool = f"{contender.prefix}test_simple_text"
    with connected(contender, REFERENCE, folder, "test_simple_text") as peer:
        at_once(peer, tool, IN_FLIGHT, IN_FLIGHT)
        tree = processes(peer.process.pid)
        before, calls = cpu_ms(tree), sizes.in_flight_calls // 2
        seconds = at_once(peer, tool, calls, IN_FLIGHT)
        cpu = (cpu_ms(tree) - before) / calls
        return {"official_at_once_per_s": calls / seconds, "official_at_once_cpu_ms": cpu}


def large(contender: Contender, folder: Path, sizes: Sizes) -> Figures:
    """Results of 1 and 10 MB that pass unchanged."""
    figures: Figures = {}
    with connected(contender, SERVER, folder, "words", PASSING) as peer:
        for size, calls in ((1, sizes.large_calls), (10, max(1, sizes.large_calls // 3))):
            for key, value in _long(contender, peer, size * MB, calls, whole=True).items():
                figures[f"passed_{size}_mb_{key}"] = value
    return figures


def fitted(contender: Contender, folder: Path, sizes: Sizes) -> Figures:
    """A result of 1 MB, shortened to its budget."""
    with connected(contender, SERVER, folder, "words") as peer:
        result = _long(contender, peer, MB, max(1, sizes.large_calls // 2), whole=False)
        return {f"fitted_1_mb_{key}": value for key, value in result.items()}


def _long(contender: Contender, peer: Peer, size: int, calls: int, *, whole: bool) -> Figures:
    tool = f"{contender.prefix}words"
    peer.call(tool, bytes=size)
    tree = processes(peer.process.pid)
    before, walls = cpu_ms(tree), []
    for _ in range(calls):
        began = time.perf_counter()
        result = peer.call(tool, bytes=size)
        walls.append((time.perf_counter() - began) * 1000)
        received_chars = sum(len(block.get("text", "")) for block in result["content"])
        if result.get("isError") or (received_chars >= size) is not whole:
            raise Silence(f"{tool}({size}) answered {received_chars:,} characters")
        peer.lines.clear()
    return {"cpu_ms": (cpu_ms(tree) - before) / calls, "p50_ms": statistics.median(walls)}


def beside(contender: Contender, folder: Path, sizes: Sizes) -> Figures:
    """Small calls to one server, while another server's result of 10 MB is on its way."""
    assert contender.stdio is not None
    with (
        connected(contender, SERVER, folder, "words") as busy,
        connected(contender, SERVER, folder, "say") as peer,
    ):
        words, say = (contender.prefix + name for name in ("words", "say"))
        busy.call(words, bytes=10 * MB)
        walls = []
        for _ in range(max(1, sizes.large_calls // 2)):
            identity = busy.start("tools/call", {"name": words, "arguments": {"bytes": 10 * MB}})
            while not busy.has_arrived(identity):
                began = time.perf_counter()
                said(peer, say, "beside")
                walls.append((time.perf_counter() - began) * 1000)
            busy.lines.clear()
        cuts = statistics.quantiles(walls, n=20)
        return {"beside_p50_ms": cuts[9], "beside_p95_ms": cuts[18], "beside_max_ms": max(walls)}


def kept(contender: Contender, folder: Path, sizes: Sizes) -> Figures:
    """A call with a cached answer."""
    tool = f"{contender.prefix}say"
    with connected(contender, SERVER, folder, "say", KEPT) as peer:
        for _ in range(WARM_UP_CALLS):
            said(peer, tool, "the same")
        tree = processes(peer.process.pid)
        before = cpu_ms(tree)
        for _ in range(sizes.calls):
            said(peer, tool, "the same")
        return {"kept_cpu_ms": (cpu_ms(tree) - before) / sizes.calls}


def over_http(contender: Contender, folder: Path, sizes: Sizes) -> Figures:
    """Small calls by a client on HTTP, to a server on stdio and to one on HTTP."""
    figures: Figures = {}
    if contender.http is not None:
        cpu = _http_calls(contender, SERVER, folder / "stdio", "say", sizes.http_calls)
        figures["http_cpu_ms"] = cpu
    with listening(REFERENCE, folder / "reference") as (port, pid):
        tool, url = "test_simple_text", f"http://127.0.0.1:{port}/mcp"
        if contender.name == "direct":
            figures["http_both_cpu_ms"] = _timed(HttpPeer(port), tool, [pid], sizes.http_calls)
        elif contender.http is not None and contender.http(url, folder / "http", 1) is not None:
            place = folder / f"http-{port}"
            cpu = _http_calls(contender, url, place, tool, sizes.http_calls, [pid])
            figures["http_both_cpu_ms"] = cpu
    return figures


def _http_calls(
    contender: Contender,
    background: BackgroundWork,
    folder: Path,
    tool: str,
    calls: int,
    pids: Sequence[int] = (),
) -> float:
    assert contender.http is not None
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    served = contender.http(background, folder, port)
    assert served is not None
    command, env = served
    with started(command, env, port, folder / "log") as pid:
        secret = folder / "upwell" / "token"
        token = secret.read_text().strip() if secret.exists() else ""
        peer = HttpPeer(port, token)
        return _timed(peer, contender.prefix + tool, [pid, *pids], calls)


def _timed(peer: HttpPeer, tool: str, pids: Sequence[int], calls: int) -> float:
    """CPU milliseconds of one call, over these processes and their descendants."""
    peer.hello()
    peer.wait_for_tool(tool)
    for _ in range(HTTP_WARM_UP_CALLS):
        peer.call(tool, text="warm")
    tree = [process for pid in pids for process in processes(pid)]
    before = cpu_ms(tree)
    for n in range(calls):
        result = peer.call(tool, text=f"call {n}")
        if result.get("isError") or not result["content"][0]["text"]:
            raise Silence(f"{tool} answered {json.dumps(result)[:200]}")
    cpu = (cpu_ms(tree) - before) / calls
    peer.close()
    return cpu


@contextmanager
def listening(command: Sequence[str], folder: Path) -> Iterator[tuple[int, int]]:
    """Start a server that takes `--port`. Yields its port and its process."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    with started([*command, "--port", str(port)], clean(folder), port, folder / "log") as pid:
        yield port, pid


@contextmanager
def started(command: Sequence[str], env: object, port: int, log: Path) -> Iterator[int]:
    """Start a process that listens on the port, and end it with all of its children."""
    with log.open("ab") as errors:
        running = subprocess.Popen(
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,  # type: ignore[call-overload]
        )
    try:
        wait_until_open(port)
        yield running.pid
    finally:
        tree = processes(running.pid)
        running.terminate()
        try:
            running.wait(10)
        except subprocess.TimeoutExpired:
            running.kill()
        for pid in tree[1:]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def endurance(contender: Contender, folder: Path, calls: int) -> Figures:
    """Memory after very many calls."""
    tool = f"{contender.prefix}say"
    with connected(contender, SERVER, folder, "say") as peer:
        for _ in range(0, calls, 500):
            at_once(peer, tool, 500, 8)
            peer.lines.clear()
            peer._replies.clear()
        return {"rss_after_mb": rss_mb(peer.process.pid)}


def flood(contender: Contender, folder: Path) -> Figures:
    """A result of 1 GB: the time to the error, and the peak memory."""
    tool = f"{contender.prefix}flood"
    with connected(contender, SERVER, folder, "flood") as peer:
        said(peer, f"{contender.prefix}say", "before")
        before, began = rss_mb(peer.process.pid, "VmHWM"), time.perf_counter()
        message = peer.ask("tools/call", {"name": tool, "arguments": {"bytes": GB}}, 120)
        seconds = time.perf_counter() - began
        result = message.get("result", {})
        if "error" not in message and not result.get("isError"):
            raise Silence(f"{tool} answered {json.dumps(message)[:200]}")
        said(peer, f"{contender.prefix}say", "after")
        peak = rss_mb(peer.process.pid, "VmHWM")
        return {"flood_s": seconds, "flood_peak_mb": peak, "flood_before_mb": before}
