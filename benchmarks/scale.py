"""Decisions beside a team's PostgreSQL and beside SQLite, in one run.

    .venv/bin/python benchmarks/scale.py [--sizes 30000 100000] [--tenants 100] [--each 300]

Starts a PostgreSQL of its own (as the tests do), fills both stores with the same made-up memories,
and asks both for the same decisions: a prompt of six words of one memory, through the whole of
surfacing, each in a session of its own. CPU is that of this process, and of the server's processes
beside it. A TCP proxy delays every packet and counts the round trips. Memories are words drawn by
Zipf's law, about 210 characters each, half of them in one of fifty projects.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.postgres import Cluster

from upwell.app import App, Settings, build
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import Memory
from upwell.ground.types.surfacing import Surfacing

VOCABULARY = 40_000
WORDS_EACH = 30
PROJECTS = 50
BATCH = 1_000
CLIENTS = (1, 8, 32)
DELAYS_MS = (0, 5, 50)


def memories(count: int, seed: int = 1) -> Iterator[Memory]:
    """Made-up memories, the same at every run."""
    rng = random.Random(seed)
    ranks = range(1, VOCABULARY + 1)
    weights = [1.0 / rank for rank in ranks]
    words = [word_of(rank) for rank in ranks]
    for number in range(count):
        drawn = rng.choices(words, weights, k=WORDS_EACH)
        project = f"/srv/p{rng.randrange(PROJECTS)}" if rng.random() < 0.5 else None
        yield Memory(
            text=" ".join(drawn),
            id=f"m{seed}-{number}",
            project=project,
            paths=(f"src/{rng.choice(drawn)}.py",),
            created_at=1_000_000.0 + number,
        )


def word_of(rank: int) -> str:
    """A pronounceable word for each rank; frequent ones are short."""
    consonants, vowels, word = "bdfgklmnprstvz", "aeiou", ""
    while rank:
        rank, sound = divmod(rank, len(consonants) * len(vowels))
        word += consonants[sound // len(vowels)] + vowels[sound % len(vowels)]
    return f"{word}x" if len(word) < 4 else word


def prompts(stored: Sequence[Memory], count: int, seed: int = 2) -> list[str]:
    rng = random.Random(seed)
    return [
        f"why does the {' '.join(rng.sample(rng.choice(stored).text.split(), k=6))} fail?"
        for _ in range(count)
    ]


@dataclass
class Row:
    """The figures of one series of decisions. Times in milliseconds, `server_cpu` of the database's
    processes per decision, `trips` round trips per decision."""

    store: str
    memories: int
    tenants: int
    clients: int
    delay_ms: float
    decisions: int
    p50: float
    p95: float
    cpu_p50: float
    cpu_mean: float
    server_cpu: float
    per_second: float
    said: int
    trips: float


class Proxy:
    """Forwards TCP connections to a port on loopback. Each direction takes half of `delay_ms`."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.delay_ms = 0.0
        self.trips = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
        is_answered = [True]

        def asked() -> None:
            self.trips += is_answered[0]
            is_answered[0] = False

        def answered() -> None:
            is_answered[0] = True

        for source, sink, seen in ((reader, up_writer, asked), (up_reader, writer, answered)):
            task = asyncio.create_task(self._forward(source, sink, seen))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        seen: Callable[[], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        while data := await source.read(65_536):
            seen()
            if self.delay_ms:
                loop.call_later(self.delay_ms / 2_000, sink.write, data)
            else:
                sink.write(data)
        loop.call_later(self.delay_ms / 2_000, sink.close)


def server_cpu(cluster: Cluster) -> float:
    """The CPU seconds of all processes of the cluster, ended ones included."""
    ticks, parent = 0, int(Path(cluster.data, "postmaster.pid").read_text().split()[0])
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        number = int(stat.parent.name)
        if number == parent:
            ticks += sum(map(int, fields[11:15]))
        elif int(fields[1]) == parent:
            ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def opened(home: Path, url: str = "", tenant: str = "default") -> AsyncIterator[App]:
    flags = {"store.url": url, "store.tenant": tenant} if url else {}
    # The proxy runs beside the app, and the daily chores are left out.
    app = await build(Settings(home=home, flags=flags, environment={}, watches=False))
    try:
        yield app
    finally:
        await app.aclose()


async def decisions(apps: Sequence[App], texts: Sequence[str], clients: int) -> list[tuple]:
    """Decide about each text, `clients` at once. Returns wall ms, CPU ms and whether it spoke."""
    waiting, results = list(enumerate(texts)), []

    async def client() -> None:
        while waiting:
            number, text = waiting.pop()
            cue = Cue(door="prompt", text=text, session=f"{clients}-{number}-{time.time_ns()}")
            began, cpu = time.perf_counter(), time.process_time()
            outcome = await apps[number % len(apps)].surfacer.surface(cue)
            spent = (time.process_time() - cpu) * 1e3
            wall = (time.perf_counter() - began) * 1e3
            results.append((wall, spent, isinstance(outcome, Surfacing)))

    await asyncio.gather(*(client() for _ in range(clients)))
    return results


async def series(
    store: str, apps: Sequence[App], texts: Sequence[str], clients: int, size: int, **more: object
) -> Row:
    """Measure one series; a few decisions before it are not counted."""
    cluster, proxy = more.get("cluster"), more.get("proxy")
    await decisions(apps, texts[: max(4, clients)], clients)
    trips, before = (proxy.trips if proxy else 0), (server_cpu(cluster) if cluster else 0.0)
    began, cpu = time.perf_counter(), time.process_time()
    results = await decisions(apps, texts, clients)
    seconds, spent = time.perf_counter() - began, time.process_time() - cpu
    wall = sorted(result[0] for result in results)
    own = sorted(result[1] for result in results)
    count = len(results)
    return Row(
        store=store,
        memories=size,
        tenants=len(apps),
        clients=clients,
        delay_ms=proxy.delay_ms if proxy else 0.0,
        decisions=count,
        p50=statistics.median(wall),
        p95=wall[int(count * 0.95)],
        cpu_p50=statistics.median(own),
        cpu_mean=spent / count * 1e3,
        server_cpu=(server_cpu(cluster) - before) / count * 1e3 if cluster else 0.0,
        per_second=count / seconds,
        said=sum(result[2] for result in results),
        trips=(proxy.trips - trips) / count if proxy else 0.0,
    )


async def ingest(app: App, stored: Sequence[Memory]) -> float:
    """Add the memories in batches. Returns memories a second of wall time."""
    began = time.perf_counter()
    for start in range(0, len(stored), BATCH):
        await app.memory.add_many(stored[start : start + BATCH])
    return len(stored) / (time.perf_counter() - began)


Report = Callable[[object], Awaitable[None]]


async def one_size(size: int, count: int, cluster: Cluster, folder: Path) -> AsyncIterator[object]:
    stored = list(memories(size))
    texts = prompts(stored, count)
    url = cluster.database()
    async with Proxy(cluster.port) as proxy:
        proxied = url.replace(f":{cluster.port}/", f":{proxy.port}/")
        async with (
            opened(folder / f"sqlite-{size}") as sqlite,
            opened(folder / f"postgres-{size}", url) as direct,
        ):
            for name, app in (("sqlite", sqlite), ("postgres", direct)):
                cpu, server = time.process_time(), server_cpu(cluster)
                rate = await ingest(app, stored)
                yield {
                    "ingest": name,
                    "memories": size,
                    "per_second": rate,
                    "cpu_ms": (time.process_time() - cpu) / size * 1e3,
                    "server_cpu_ms": (server_cpu(cluster) - server) / size * 1e3,
                }
            for clients in CLIENTS:
                for name, app in (("sqlite", sqlite), ("postgres", direct)):
                    place = cluster if name == "postgres" else None
                    yield await series(name, [app], texts, clients, size, cluster=place)
        async with opened(folder / f"proxied-{size}", proxied) as behind:
            for delay in DELAYS_MS:
                proxy.delay_ms = float(delay)
                few = texts[: max(20, count // 4)]
                yield await series(
                    "postgres, proxy", [behind], few, 1, size, cluster=cluster, proxy=proxy
                )


async def many_tenants(
    tenants: int, each: int, count: int, cluster: Cluster, folder: Path
) -> AsyncIterator[object]:
    """Tenants of `each` memories in one database."""
    url, apps, texts = cluster.database(), [], []
    contexts = [opened(folder / f"t{n}", url, f"tenant {n}") for n in range(tenants)]
    began = time.perf_counter()
    try:
        for number, context in enumerate(contexts):
            app = await context.__aenter__()
            stored = list(memories(each, seed=100 + number))
            await ingest(app, stored)
            apps.append(app)
            texts += prompts(stored, max(1, count // tenants), seed=number)
        yield {
            "ingest": "postgres",
            "tenants": tenants,
            "per_second": tenants * each / (time.perf_counter() - began),
        }
        for clients in CLIENTS:
            yield await series("postgres", apps, texts, clients, tenants * each, cluster=cluster)
    finally:
        for context in contexts[: len(apps)]:
            await context.__aexit__(None, None, None)


async def main(options: argparse.Namespace) -> None:
    def report(row: object) -> None:
        shown = asdict(row) if isinstance(row, Row) else dict(row)  # type: ignore[call-overload]
        rounded = {k: round(v, 2) if isinstance(v, float) else v for k, v in shown.items()}
        print(json.dumps(rounded), flush=True)

    cluster = Cluster()
    with tempfile.TemporaryDirectory() as name:
        report({"load": os.getloadavg()[0], "cores": os.cpu_count()})
        for size in options.sizes:
            async for row in one_size(size, options.decisions, cluster, Path(name)):
                report(row)
        if options.tenants:
            part = many_tenants(
                options.tenants, options.each, options.decisions, cluster, Path(name)
            )
            async for row in part:
                report(row)
        report({"load": os.getloadavg()[0]})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[30_000, 100_000])
    parser.add_argument("--decisions", type=int, default=200)
    parser.add_argument("--tenants", type=int, default=100)
    parser.add_argument("--each", type=int, default=300)
    asyncio.run(main(parser.parse_args()))
