"""Measures the decisions of hooks on a developer's machine with four stores, in one run: plain
SQLite, a snapshot of the team's memories from its database (`store.local`), a snapshot by token
from a gateway, and the team's PostgreSQL itself. The network has delays of 0, 5 and 50 ms.

    .venv/bin/python benchmarks/local_copy.py [--memories 10000] [--decisions 60] [--rounds 2]

Starts a PostgreSQL and a gateway of its own, as the tests do. Each series runs in a process of its
own, which answers prompts as a hook does. Every prompt has words of one memory and a session of its
own. A proxy in the main process adds the delay, half of it in each direction, and counts the round
trips. The memories are made up; half of them belong to the repository that is worked on.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.made_up import Company, questions
from tests.doors.replicas import Replica, replicas
from tests.postgres import Cluster
from tests.proxy import Proxy

from upwell.app import App, Settings, build
from upwell.ground.postgres.connection import Postgres
from upwell.ground.types.memory import Memory
from upwell.memory.postgres.store import PostgresStore
from upwell.memory.sqlite.team_store import TeamStore

REMOTE = "github.com/acme/shop"
BATCH = 1_000
UNCOUNTED = 10
DELAYS_MS = (0, 5, 50)


def stored(count: int) -> Iterator[Memory]:
    for number, memory in enumerate(Company().memories(count)):
        yield replace(memory, project=REMOTE if number % 2 else None)


async def fill(url: str, count: int) -> float:
    """Fill the team's database. Returns the seconds."""
    store, began = PostgresStore(Postgres(url)), time.monotonic()
    items = list(stored(count))
    for start in range(0, count, BATCH):
        await store.add(items[start : start + BATCH])
    await store.aclose()
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--decisions", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--worker", nargs=2, metavar=("SERIES", "HOME"))
    options = parser.parse_args()
    if options.worker:
        series, home = options.worker
        asyncio.run(work(series, Path(home), options.memories, options.decisions))
        return
    cluster = Cluster()
    url = cluster.database()
    print(f"filled in {asyncio.run(fill(url, options.memories)):.1f} s")
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "shop")
        (project / ".git").mkdir(parents=True)
        config = f'[remote "origin"]\n\turl = git@{REMOTE.replace("/", ":", 1)}.git\n'
        (project / ".git/config").write_text(config)
        rows: dict[str, list[dict[str, Any]]] = {}
        for _ in range(options.rounds):
            with replicas(Path(folder), url, "replica") as (replica,):
                for name, answer in measured(options, cluster.port, url, project, replica):
                    rows.setdefault(name, []).append(answer)
    print("| series | wall p50 | p95 | CPU p50 | p95 | round trips | said | first fill |")
    print("|---|---|---|---|---|---|---|---|")
    for name, answers in rows.items():
        print(row(name, answers))


def measured(
    options: argparse.Namespace, port: int, url: str, project: Path, replica: Replica
) -> Iterator[tuple[str, dict[str, Any]]]:
    for series, delay_ms in [
        ("sqlite", 0),
        *((name, delay) for delay in DELAYS_MS for name in ("copy", "gateway", "direct")),
        ("copy offline", 50),
        ("gateway offline", 50),
    ]:
        is_by_token = series.startswith("gateway")
        proxy = Proxy(replica.port if is_by_token else port, delay_ms / 2_000)
        home = project.parent / f"{series.replace(' ', '-')}-{delay_ms}"
        environment = {**os.environ, "UPWELL_HOME": str(home), "UPWELL_HOOK__PROMPT_MS": "8000"}
        if is_by_token:
            environment["UPWELL_STORE__URL"] = f"http://127.0.0.1:{proxy.port}"
            environment["UPWELL_STORE__TOKEN"] = replica.token
        elif series != "sqlite":
            environment["UPWELL_STORE__URL"] = proxy.url(url)
            environment["UPWELL_STORE__LOCAL"] = str(series != "direct").lower()
        command = [sys.executable, __file__, "--worker", series, str(home)]
        command += ["--memories", str(options.memories), "--decisions", str(options.decisions)]
        child = subprocess.Popen(
            command,
            env=environment,
            cwd=project,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        if series.endswith("offline"):
            proxy.cut()
        before = proxy.round_trips
        child.stdin.write("go\n")
        child.stdin.flush()
        answer = json.loads(child.stdout.readline())
        answer["trips"] = proxy.round_trips - before
        child.communicate()
        proxy.close()
        yield f"{series}, {delay_ms} ms", answer


def row(name: str, answers: list[dict[str, Any]]) -> str:
    walls = [wall for answer in answers for wall in answer["wall"]]
    cpus = [cpu for answer in answers for cpu in answer["cpu"]]
    trips = sum(answer["trips"] for answer in answers) / len(walls)
    said = sum(answer["said"] for answer in answers)
    fill_seconds = max(answer["fill"] for answer in answers)
    figures = [quantile(walls, 0.5), quantile(walls, 0.95), quantile(cpus, 0.5)]
    shown = " | ".join(f"{figure:.1f}" for figure in [*figures, quantile(cpus, 0.95)])
    return f"| {name} | {shown} | {trips:.2f} | {said} of {len(walls)} | {fill_seconds:.1f} s |"


def quantile(values: list[float], share: float) -> float:
    return statistics.quantiles(values, n=100)[round(share * 100) - 1]


async def work(series: str, home: Path, count: int, decisions: int) -> None:
    """One series: fill, report, wait for the start, answer prompts, report the times."""
    app = await build(Settings(home=home, tolerant=True))
    began = time.monotonic()
    following: asyncio.Task[None] | None = None
    store = app.memory.store
    if isinstance(store, TeamStore):
        following = asyncio.create_task(app.follow_team())
        await answered(app, "the first prompt of all", "first")
        while (await store.state()).memories < count:
            await asyncio.sleep(0.1)
    elif series == "sqlite" and not list(await app.memory.list(limit=1)):
        items = list(stored(count))
        for start in range(0, count, BATCH):
            await app.memory.add_many(items[start : start + BATCH])
    filled = time.monotonic() - began
    await asyncio.sleep(2.0)
    asked = questions(list(stored(count)), decisions + UNCOUNTED)
    for number in range(UNCOUNTED):
        await answered(app, asked[decisions + number], f"warm {number}")
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    wall, cpu, said = [], [], 0
    for number in range(decisions):
        started, spent = time.perf_counter(), time.process_time()
        said += await answered(app, asked[number], f"{os.getpid()} {number}")
        wall.append((time.perf_counter() - started) * 1_000)
        cpu.append((time.process_time() - spent) * 1_000)
    print(json.dumps({"wall": wall, "cpu": cpu, "said": said, "fill": filled}), flush=True)
    if following:
        following.cancel()
        await asyncio.wait({following})
    await app.aclose()


async def answered(app: App, text: str, session: str) -> bool:
    """Answer a prompt of Claude Code. Returns whether a memory was given."""
    event = {"hook_event_name": "UserPromptSubmit", "session_id": session, "prompt": text}
    body = json.dumps({**event, "cwd": os.getcwd()}).encode()
    answer = await doors(app).answer("claude", "UserPromptSubmit", body)
    return b"additionalContext" in answer


_DOORS: dict[int, Any] = {}


def doors(app: App) -> Any:
    return _DOORS.setdefault(id(app), app.hooks())


if __name__ == "__main__":
    main()
