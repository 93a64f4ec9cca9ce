"""Measures decisions with a team's PostgreSQL and with SQLite, in one run.

    .venv/bin/python benchmarks/scale.py [--sizes 30000 100000 1000000]

Starts a PostgreSQL of its own (as the tests do), fills both stores with the same made-up memories
(`made_up.py`, `bulk.py`), and asks both for the same decisions. Every prompt is about one memory
and has a session of its own; it goes through the whole of surfacing and searches all projects. The
wall time ends when the decision is made. The CPU time also covers the record of its delivery, which
follows; this process and the database's processes are counted separately. In further series, a TCP
proxy delays every packet and counts round trips.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from multiprocessing import Process
from pathlib import Path

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import bulk
from benchmarks.made_up import Company, questions
from tests.postgres import Cluster

from upwell.app import App, Settings, build
from upwell.ground.postgres.connection import migrate
from upwell.ground.types.cue import Cue, Surfacing

SAMPLED = 20_000
"""Every prompt is about one of this many memories."""
INGESTED, BATCH, SINGLES = 2_000, 1_000, 50
CLIENTS = (1, 8, 32)
DELAYS_MS = (0, 5, 50)
SERVER = {"shared_buffers": "2GB", "max_connections": "300", "max_wal_size": "8GB"}
"""The settings for a database server of this size; PostgreSQL's defaults are for smaller ones."""


@dataclass
class Row:
    """The figures of one series of decisions. Times are in milliseconds. `cpu` (of this process),
    `server_cpu` (of the database's processes) and `trips` (round trips) are per decision."""

    store: str
    memories: int
    clients: int
    delay_ms: float
    decisions: int
    p50: float
    p95: float
    cpu: float
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
async def opened(home: Path, url: str = "") -> AsyncIterator[App]:
    flags = {"store.url": url} if url else {}
    # Imported files are not watched.
    settings = Settings(home=home, flags=flags, environment={}, watches=False)
    app = await build(settings)
    try:
        yield app
    finally:
        await app.aclose()


async def decisions(
    apps: Sequence[App], texts: Sequence[tuple[int, str]], clients: int
) -> list[tuple[float, bool]]:
    """Decide about each text in the app with its number, `clients` at once. Returns the wall time
    in milliseconds of each decision, and whether a memory surfaced."""
    waiting, results = list(enumerate(texts)), []

    async def client() -> None:
        while waiting:
            number, (place, text) = waiting.pop()
            cue = Cue(door="prompt", text=text, session=f"{clients}-{number}-{time.time_ns()}")
            surfacer, began = apps[place].surfacer, time.perf_counter()
            outcome = await surfacer.offer(cue)
            results.append(((time.perf_counter() - began) * 1e3, isinstance(outcome, Surfacing)))
            if isinstance(outcome, Surfacing):
                await surfacer.deliveries.delivered(outcome, cue)

    await asyncio.gather(*(client() for _ in range(clients)))
    return results


async def series(
    store: str,
    apps: Sequence[App],
    texts: Sequence[tuple[int, str]],
    clients: int,
    size: int,
    cluster: Cluster | None = None,
    proxy: Proxy | None = None,
) -> Row:
    """Measure one series. Before it, enough decisions are made for every connection to prepare its
    statements; they are not counted."""
    await decisions(apps, texts[: 4 + 6 * clients], clients)
    trips, before = (proxy.trips if proxy else 0), (server_cpu(cluster) if cluster else 0.0)
    began, cpu = time.perf_counter(), time.process_time()
    results = await decisions(apps, texts, clients)
    seconds, spent = time.perf_counter() - began, time.process_time() - cpu
    wall, count = sorted(took for took, _ in results), len(results)
    return Row(
        store=store,
        memories=size,
        clients=clients,
        delay_ms=proxy.delay_ms if proxy else 0.0,
        decisions=count,
        p50=statistics.median(wall),
        p95=wall[int(count * 0.95)],
        cpu=spent / count * 1e3,
        server_cpu=(server_cpu(cluster) - before) / count * 1e3 if cluster else 0.0,
        per_second=count / seconds,
        said=sum(spoke for _, spoke in results),
        trips=(proxy.trips - trips) / count if proxy else 0.0,
    )


async def ingest(name: str, app: App, size: int, cluster: Cluster) -> dict[str, object]:
    """Add memories to a store of `size`, through the library: in batches, and one by one. The first
    memory is added uncounted, because the null scores of its project are measured with it."""
    added = [replace(memory, project="/srv/p1") for memory in Company().memories(INGESTED, seed=9)]
    await app.memory.add_many(added[:1])
    began, cpu, server = time.perf_counter(), time.process_time(), server_cpu(cluster)
    for start in range(0, INGESTED, BATCH):
        await app.memory.add_many(added[start : start + BATCH])
    many = time.perf_counter()
    own_ms = (time.process_time() - cpu) / INGESTED * 1e3
    server_ms = (server_cpu(cluster) - server) / INGESTED * 1e3
    singles = list(Company().memories(SINGLES, seed=10))
    for memory in singles:
        await app.memory.add(replace(memory, project="/srv/p1"))
    return {
        "ingest": name,
        "memories": size,
        "per_second": INGESTED / (many - began),
        "cpu_ms": own_ms,
        "server_cpu_ms": server_ms,
        "one_ms": (time.perf_counter() - many) / SINGLES * 1e3,
    }


def superuser(url: str) -> str:
    return url.replace("//upwell_app@", "//postgres@")


def fill(size: int, home: Path, url: str) -> None:
    """Fill a SQLite home and a database with the same memories, both at once."""
    asyncio.run(migrate(url))
    halves = [Process(target=_fill_sqlite, args=(size, home))]
    halves.append(Process(target=_fill_postgres, args=(size, url)))
    for half in halves:
        half.start()
    for half in halves:
        half.join()
        assert half.exitcode == 0


def _fill_sqlite(size: int, home: Path) -> None:
    asyncio.run(bulk.fill_sqlite(home, Company().memories(size)))


def _fill_postgres(size: int, url: str) -> None:
    bulk.fill_postgres(superuser(url), url, [("default", Company().memories(size))])
    asyncio.run(bulk.measure_null_scores(url, ["default"], superuser(url)))


def prompts(count: int, size: int) -> list[tuple[int, str]]:
    stored = list(islice(Company().memories(size), SAMPLED))
    return [(0, text) for text in questions(stored, count)]


async def one_size(
    size: int, count: int, cluster: Cluster, home: Path, url: str
) -> AsyncIterator[object]:
    """Decisions with both stores, which hold `size` memories each and take turns."""
    texts = prompts(count, size)
    async with opened(home) as sqlite, opened(home.with_suffix(".pg"), url) as direct:
        for clients in CLIENTS:
            yield await series("sqlite", [sqlite], texts, clients, size)
            yield await series("postgres", [direct], texts, clients, size, cluster)
        yield await ingest("sqlite", sqlite, size, cluster)
        yield await ingest("postgres", direct, size, cluster)
    async with Proxy(cluster.port) as proxy:
        proxied = url.replace(f":{cluster.port}/", f":{proxy.port}/")
        async with opened(home.with_suffix(".proxy"), proxied) as behind:
            for delay in DELAYS_MS:
                proxy.delay_ms = float(delay)
                few = texts[: max(40, count // 4)]
                yield await series("postgres, proxy", [behind], few, 1, size, cluster, proxy)


def serving(programs: Path | None = None) -> Cluster:
    """A cluster with the settings of a server."""
    cluster = Cluster(programs=programs)
    for name, value in SERVER.items():
        cluster.set(name, value)
    cluster.stop()
    cluster.start()
    return cluster


def report(row: object) -> None:
    shown = asdict(row) if isinstance(row, Row) else dict(row)  # type: ignore[call-overload]
    rounded = {k: round(v, 2) if isinstance(v, float) else v for k, v in shown.items()}
    print(json.dumps(rounded), flush=True)


async def main(options: argparse.Namespace) -> None:
    cluster = serving()
    with tempfile.TemporaryDirectory() as name:
        report({"load": os.getloadavg()[0], "cores": os.cpu_count()})
        for size in options.sizes:
            home, url = Path(name, str(size)), cluster.database()
            await asyncio.to_thread(fill, size, home, url)
            async for row in one_size(size, options.decisions, cluster, home, url):
                report(row)
        report({"load": os.getloadavg()[0]})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[30_000, 100_000, 1_000_000])
    parser.add_argument("--decisions", type=int, default=300)
    asyncio.run(main(parser.parse_args()))
