"""What a gateway costs: CPU per small call, start-up and memory, beside memtomem-stm in one run.

    python benchmarks/gateway.py [--memtomem-stm DIR] [--calls N] [--rounds N] [--json]

DIR is an environment with memtomem-stm 0.6.9; without it one is made under `.tools/`.
The same raw client speaks to all; rounds are interleaved, and the median of the rounds is shown.
CPU is user + system time of every process below the client: trust that, and the ratios; wall times
depend on what else the machine is doing. memtomem-stm runs with its defaults, but without its
long-term memory, which would be one process more; upwell runs with its defaults, its own memory on.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.doors.npm import install  # noqa: E402
from tests.doors.peer import Peer, Silence, processes  # noqa: E402

VERSION = "0.6.9"
TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
WARM_UP_CALLS = 30
UPSTREAM = [sys.executable, str(ROOT / "tests/doors/servers/upstream.py")]
MEMORIES = [
    "The settlement job must run before midnight UTC.",
    "Deploys to production need two approvals.",
    "The cache is flushed by the nightly cron on host heron.",
]
GOALS = {
    "call_cpu_ms": "added CPU per small call ≤ 2 ms",
    "start_ms": "start to the initialize reply ≤ 0.2 × memtomem-stm",
    "rss_mb": "RSS ≤ 80 MB",
}


@dataclass(frozen=True)
class Contender:
    """One way to reach a server. `serve(upstream, folder)` gives the command and its environment;
    `tool(name)` is what the client calls a tool of it."""

    name: str
    serve: Callable[[Sequence[str], Path], tuple[list[str], Mapping[str, str]]]
    prefix: str


@dataclass(frozen=True)
class Figures:
    """Medians over the rounds."""

    name: str
    call_cpu_ms: float
    call_p50_ms: float
    call_p95_ms: float
    start_ms: float
    start_cpu_ms: float
    ready_ms: float
    rss_mb: float


def cpu_ms(pids: Sequence[int]) -> float:
    """User + system time of the processes, their finished children included."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(field) for field in fields[11:15])
    return ticks * TICK_MS


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no VmRSS for {pid}")


def clean(folder: Path, **extra: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", **extra}


def direct(upstream: Sequence[str], folder: Path) -> tuple[list[str], Mapping[str, str]]:
    return list(upstream), clean(folder)


def upwell(upstream: Sequence[str], folder: Path) -> tuple[list[str], Mapping[str, str]]:
    env = clean(folder, UPWELL_HOME=str(folder / "upwell"))
    command = [sys.executable, "-m", "upwell"]
    if not (folder / "upwell").exists():
        run([*command, "add", "up", "--", *upstream], env)
        for text in MEMORIES:
            run([*command, "remember", text], env)
    return [*command, "serve"], env


def memtomem_stm(
    venv: Path,
) -> Callable[[Sequence[str], Path], tuple[list[str], Mapping[str, str]]]:
    def serve(upstream: Sequence[str], folder: Path) -> tuple[list[str], Mapping[str, str]]:
        config = folder / "stm_proxy.json"
        prefix = "MEMTOMEM_STM_"
        env = clean(
            folder,
            **{
                prefix + "DATA_DIR": str(folder / "memtomem"),
                prefix + "PROXY__ENABLED": "true",
                prefix + "PROXY__CONFIG_PATH": str(config),
                prefix + "SURFACING__ENABLED": "false",
            },
        )
        if not config.exists():
            command, *args = upstream
            add = [str(venv / "bin" / "mms"), "add", "up", "--config", str(config)]
            add += ["--command", command, "--args", " ".join(args), "--prefix", "up"]
            run(add, env)
        return [str(venv / "bin" / "memtomem-stm")], env

    return serve


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command[:4])} … failed:\n{done.stdout.decode(errors='replace')}")


def environment_with_peer(given: Path | None) -> Path:
    """An environment with the peer in it: the one given, or one of our own."""
    venv = given or ROOT / ".tools" / f"memtomem-stm-{VERSION}"
    if not (venv / "bin" / "memtomem-stm").exists():
        if given:
            sys.exit(f"no memtomem-stm in {given}")
        print(f"installing memtomem-stm {VERSION} into {venv.relative_to(ROOT)}", file=sys.stderr)
        wanted = f"memtomem-stm=={VERSION}"
        uv = working_uv()
        if uv:
            run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)])
            run([uv, "pip", "install", "--quiet", "--python", str(venv / "bin/python"), wanted])
        else:
            run([sys.executable, "-m", "venv", str(venv)])
            run([str(venv / "bin/python"), "-m", "pip", "install", "--quiet", wanted])
    return venv


def working_uv() -> str | None:
    for uv in (str(ROOT / ".tools/uv/bin/uv"), shutil.which("uv") or ""):
        if uv and Path(uv).exists():
            tried = subprocess.run([uv, "--version"], capture_output=True, check=False)
            if tried.returncode == 0:
                return uv
    return None


def connect(contender: Contender, upstream: Sequence[str], folder: Path) -> Peer:
    command, env = contender.serve(upstream, folder)
    return Peer(command, env=env, cwd=folder, errors=folder / "stderr", deadline=60)


def start_up(contender: Contender, upstream: Sequence[str], folder: Path) -> tuple[float, ...]:
    """Milliseconds to the `initialize` reply, CPU of the tree until then, and milliseconds until
    the upstream's tools are listed."""
    contender.serve(upstream, folder)
    began = time.perf_counter()
    with connect(contender, upstream, folder) as peer:
        peer.hello()
        hello = (time.perf_counter() - began) * 1000
        cpu = cpu_ms(processes(peer.process.pid))
        peer.wait_for_tools(f"{contender.prefix}read_text_file", deadline=60)
        return hello, cpu, (time.perf_counter() - began) * 1000


def calls(contender: Contender, count: int, folder: Path) -> tuple[float, list[float], float]:
    """CPU milliseconds per call, the wall times, and the RSS of the first process in MB."""
    tool = f"{contender.prefix}say"
    with connect(contender, UPSTREAM, folder) as peer:
        peer.hello()
        peer.wait_for_tools(tool, deadline=60)
        for n in range(WARM_UP_CALLS):
            said(peer, tool, f"warm {n}")
        tree = processes(peer.process.pid)
        before = cpu_ms(tree)
        walls = []
        for n in range(count):
            began = time.perf_counter()
            said(peer, tool, f"call {n}")
            walls.append((time.perf_counter() - began) * 1000)
        return (cpu_ms(tree) - before) / count, walls, rss_mb(peer.process.pid)


def said(peer: Peer, tool: str, text: str) -> None:
    result = peer.call(tool, text=text)
    if result.get("isError") or result["content"][0]["text"] != text:
        raise Silence(f"{tool} answered {json.dumps(result)[:200]}")


def measure(contenders: Sequence[Contender], options: argparse.Namespace) -> list[Figures]:
    install.ensure()
    found: dict[str, dict[str, list[float]]] = {one.name: {} for one in contenders}

    def note(name: str, **values: float) -> None:
        for key, value in values.items():
            found[name].setdefault(key, []).append(value)

    with tempfile.TemporaryDirectory(prefix="upwell-bench-") as scratch:
        shared = Path(scratch) / "files"
        shared.mkdir()
        filesystem = [*install.server("filesystem"), str(shared)]
        for round_number in range(options.rounds + 1):
            for one in contenders:
                for kind in ("calls", "start"):
                    (Path(scratch) / one.name / kind).mkdir(parents=True, exist_ok=True)
                folder = Path(scratch) / one.name
                start, start_cpu, ready = start_up(one, filesystem, folder / "start")
                cpu, walls, rss = calls(one, options.calls, folder / "calls")
                if round_number == 0:  # caches of every kind are filled by now
                    continue
                cuts = statistics.quantiles(walls, n=20)
                note(one.name, call_cpu_ms=cpu, call_p50_ms=cuts[9], call_p95_ms=cuts[18])
                note(one.name, start_ms=start, start_cpu_ms=start_cpu, ready_ms=ready, rss_mb=rss)
    return [
        Figures(name, **{key: statistics.median(values) for key, values in table.items()})
        for name, table in found.items()
    ]


def verdicts(figures: Mapping[str, Figures]) -> dict[str, tuple[float, float, bool]]:
    """Each goal with the measured value, the limit and whether it is met."""
    plain, ours, theirs = figures["direct"], figures["upwell"], figures["memtomem-stm"]
    added = ours.call_cpu_ms - plain.call_cpu_ms
    share = ours.start_ms / theirs.start_ms
    return {
        "call_cpu_ms": (added, 2.0, added <= 2.0),
        "start_ms": (share, 0.2, share <= 0.2),
        "rss_mb": (ours.rss_mb, 80.0, ours.rss_mb <= 80.0),
    }


def table(figures: Sequence[Figures]) -> str:
    heads = {
        "call_cpu_ms": "CPU/call ms",
        "call_p50_ms": "p50 ms",
        "call_p95_ms": "p95 ms",
        "start_ms": "initialize ms",
        "start_cpu_ms": "its CPU ms",
        "ready_ms": "tools listed ms",
        "rss_mb": "RSS MB",
    }
    lines = [f"{'':14}" + "".join(f"{head:>17}" for head in heads.values())]
    for one in figures:
        row = asdict(one)
        lines.append(f"{one.name:14}" + "".join(f"{row[key]:17.2f}" for key in heads))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--memtomem-stm", type=Path, metavar="DIR", help="its environment")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    venv = environment_with_peer(options.memtomem_stm and options.memtomem_stm.absolute())
    contenders = [
        Contender("direct", direct, ""),
        Contender("upwell", upwell, "up__"),
        Contender("memtomem-stm", memtomem_stm(venv), "up__"),
    ]
    figures = measure(contenders, options)
    goals = verdicts({one.name: one for one in figures})
    if options.json:
        rows = [asdict(one) for one in figures]
        named = {
            key: {"goal": GOALS[key], "value": value, "limit": limit, "met": met}
            for key, (value, limit, met) in goals.items()
        }
        print(json.dumps({"figures": rows, "goals": named}, indent=2, ensure_ascii=False))
    else:
        print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()}")
        print(f"{options.rounds} rounds of {options.calls} calls; medians\n\n{table(figures)}\n")
        for key, (value, _, met) in goals.items():
            print(f"{'met   ' if met else 'MISSED'}  {GOALS[key]}: {value:.2f}")
    return 0 if all(met for _, _, met in goals.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
