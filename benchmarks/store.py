"""What the store costs: ingest, a durable add, search, a cold start, disk.

    python benchmarks/store.py [--sizes 10000,100000,1000000]

Text is synthetic: Zipf-distributed words over 100 000 made-up ones, a quarter of them from one of
2 000 topics, 24 to 43 words a memory. Queries have 30 words, most of them common.
"""

import argparse
import asyncio
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from upwell.ground.db import open_database
from upwell.ground.limits import Deadline
from upwell.ground.types import Memory, Query
from upwell.memory.schema import OWNER
from upwell.memory.sqlite import SqliteStore

WORDS = 100_000
TOPICS = 2_000
BATCH = 5_000
COLD = """
import asyncio, sys, time
began = time.perf_counter()
from pathlib import Path
from upwell.ground.db import open_database
from upwell.ground.limits import Deadline
from upwell.ground.types import Query
from upwell.memory.schema import OWNER
from upwell.memory.sqlite import SqliteStore
async def main():
    store = SqliteStore(open_database(Path(sys.argv[1]), [OWNER], synchronous="FULL"))
    await store.search(Query(texts=(sys.argv[2],)), Deadline.after(60))
    print(1000 * (time.perf_counter() - began), 1000 * time.process_time())
asyncio.run(main())
"""


class Writer:
    """Made-up text with the statistics of real text."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.words = [self._word(i) for i in range(WORDS)]
        self.weights = list(accumulate(1.0 / (rank + 1) for rank in range(WORDS)))

    def _word(self, number: int) -> str:
        letters = "aeioubcdfghklmnprstvz"
        word = ""
        number += 500
        while number:
            number, digit = divmod(number, len(letters))
            word += letters[digit]
        return word + "q"

    def text(self, words: int) -> str:
        topic = self.rng.randrange(TOPICS)
        own = max(1, words // 4)
        common = self.rng.choices(self.words, cum_weights=self.weights, k=words - own)
        around = [self.words[(topic * 47 + self.rng.randrange(40)) % WORDS] for _ in range(own)]
        return " ".join(common + around)

    def memories(self, count: int) -> Iterator[Memory]:
        for _ in range(count):
            yield Memory(text=self.text(self.rng.randint(24, 43)))


def spread(values: list[float]) -> str:
    ordered = sorted(values)
    return f"p50 {ordered[len(ordered) // 2]:.2f}  p95 {ordered[int(len(ordered) * 0.95)]:.2f} ms"


async def measure(size: int, folder: Path) -> None:
    path = folder / "memory.db"
    database = open_database(path, [OWNER], synchronous="FULL")
    store = SqliteStore(database)
    writer = Writer(1)
    began = time.perf_counter()
    for start in range(0, size, BATCH):
        await store.add(list(writer.memories(min(BATCH, size - start))))
    took = time.perf_counter() - began
    await database.checkpoint()
    print(f"{size:>8} memories: {size / took:,.0f}/s in, {path.stat().st_size / 1e6:.0f} MB")
    queries = [writer.text(30) for _ in range(60)]
    cpu: list[float] = []
    wall: list[float] = []
    for text in queries:
        before, at = time.process_time(), time.perf_counter()
        await store.search(Query(texts=(text,)), Deadline.after(60))
        cpu.append(1000 * (time.process_time() - before))
        wall.append(1000 * (time.perf_counter() - at))
    print(f"         search, 30 words: cpu {spread(cpu)}, wall {spread(wall)}")
    adds: list[float] = []
    for memory in writer.memories(100):
        at = time.perf_counter()
        await store.add([memory])
        adds.append(1000 * (time.perf_counter() - at))
    print(f"         durable add: {spread(adds)}")
    await database.aclose()
    cold = subprocess.run(
        [sys.executable, "-c", COLD, str(path), queries[0]],
        capture_output=True,
        text=True,
        check=True,
    )
    wall_ms, cpu_ms = map(float, cold.stdout.split())
    print(f"         a fresh process answers in {wall_ms:.0f} ms ({cpu_ms:.0f} ms of CPU in all)")
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"         peak RSS of this process {rss:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="10000,100000")
    for size in map(int, parser.parse_args().sizes.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure(size, Path(folder)))


if __name__ == "__main__":
    main()
