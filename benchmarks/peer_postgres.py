"""Searches of a team's memories in PostgreSQL: upwell beside mem0, in one run.

    .venv/bin/python benchmarks/peer_postgres.py --mem0 PYTHON --postgres FOLDER [--sizes 30000]

PYTHON is that of an environment with `mem0ai` and `psycopg[binary,pool]`. FOLDER has the `bin` of a
PostgreSQL with pgvector, which mem0 needs (for example `pgembed/pginstall`). Both systems search
the same made-up memories (`made_up.py`) on the same server for the same questions, and take turns.
mem0's embedding is a hash of a text's words, which costs next to nothing but means little: its
times are those of its search alone, and its hits are not a measure of mem0 with a real model.
upwell searches without vectors.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import batched
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import bulk
from benchmarks.made_up import Company, question
from benchmarks.scale import opened, report, server_cpu, serving, superuser
from tests.postgres import Cluster

from upwell.app import App
from upwell.ground.postgres.connection import migrate
from upwell.ground.types.memory import Memory

LIMIT = 10
CLIENTS = (1, 8)


class Mem0:
    """mem0 in a process of its own."""

    def __init__(self, python: str, address: str) -> None:
        worker = str(Path(__file__).with_name("mem0_worker.py"))
        self._process = subprocess.Popen(
            [python, worker, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **request: object) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


async def searches(app: App, texts: Sequence[str], clients: int) -> dict[str, Any]:
    """upwell's answers, in the form of `mem0_worker.py`."""
    answers: dict[int, tuple[float, list[str]]] = {}

    async def client(waiting: list[tuple[int, str]]) -> None:
        while waiting:
            number, text = waiting.pop()
            began = time.perf_counter()
            hits = await app.memory.search(text, limit=LIMIT)
            took = (time.perf_counter() - began) * 1e3
            answers[number] = took, [hit.memory.text for hit in hits]

    await client(list(enumerate(texts[: 4 + 6 * clients])))
    cpu, waiting = time.process_time(), list(enumerate(texts))
    await asyncio.gather(*(client(waiting) for _ in range(clients)))
    spent = time.process_time() - cpu
    results = [answers[number] for number in range(len(texts))]
    return {"ms": [t for t, _ in results], "cpu": spent, "found": [found for _, found in results]}


def figures(
    name: str, size: int, clients: int, answer: dict[str, Any], wanted: Sequence[str], server: float
) -> dict[str, object]:
    count, wall = len(wanted), sorted(answer["ms"])
    right = sum(text in found for text, found in zip(wanted, answer["found"], strict=True))
    return {
        "store": name,
        "memories": size,
        "clients": clients,
        "p50": statistics.median(wall),
        "p95": wall[int(count * 0.95)],
        "cpu": answer["cpu"] / count * 1e3,
        "server_cpu": server / count * 1e3,
        "first_ten": right / count,
        "load": os.getloadavg()[0],
    }


async def one_size(size: int, cluster: Cluster, options: argparse.Namespace, home: Path) -> None:
    stored = list(Company().memories(size))
    rng = random.Random(3)
    targets = rng.sample(stored, options.searches)
    texts = [question(rng, memory) for memory in targets]
    wanted = [memory.text for memory in targets]
    url, other = cluster.database(), cluster.database()
    await migrate(url)
    began = time.perf_counter()
    bulk.fill_postgres(superuser(url), url, [("default", stored)])
    await bulk.measure_null_scores(url, ["default"], superuser(url))
    report({"filled": "upwell", "memories": size, "seconds": time.perf_counter() - began})
    peer = Mem0(options.mem0, superuser(other))
    seconds = _fill(peer, stored)
    report({"filled": "mem0", "memories": size, "seconds": seconds})
    async with opened(home, url) as app:
        for clients in CLIENTS:
            before = server_cpu(cluster)
            answer = await searches(app, texts, clients)
            between = server_cpu(cluster)
            report(figures("upwell", size, clients, answer, wanted, between - before))
            answer = peer.ask(do="search", texts=texts, clients=clients)
            spent = server_cpu(cluster) - between
            report(figures("mem0", size, clients, answer, wanted, spent))
    peer.close()


def _fill(peer: Mem0, stored: Sequence[Memory]) -> float:
    return sum(
        peer.ask(do="add", memories=[[memory.id, memory.text] for memory in batch])["seconds"]
        for batch in batched(stored, 5_000)
    )


async def main(options: argparse.Namespace) -> None:
    cluster = serving(options.postgres / "bin")
    with tempfile.TemporaryDirectory() as name:
        for size in options.sizes:
            await one_size(size, cluster, options, Path(name, str(size)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mem0", required=True)
    parser.add_argument("--postgres", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="*", default=[30_000, 100_000])
    parser.add_argument("--searches", type=int, default=300)
    asyncio.run(main(parser.parse_args()))
