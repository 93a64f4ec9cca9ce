"""Measures the cost of a store of memories: ingest, a durable add, search, a cold start, disk,
memory.

    python benchmarks/store.py [--sizes 10000,100000,1000000]
    python benchmarks/store.py --memtomem PYTHON --memory-service PYTHON      peers, each its venv

Text is synthetic: a memory has 24 to 43 words, drawn by Zipf's law from 100,000 made-up ones, but a
quarter of them from one of 2,000 topics. Queries have 30 words, most of them common. Every store
runs in a process of its own (`store_worker.py`), on the same texts in the same order. If filling a
store takes longer than --patience, the filling stops, and the number of stored memories is
reported.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from upwell.ground.types.memory import Memory

HERE = Path(__file__).parent
WORDS = 100_000
TOPICS = 2_000
BATCH = 5_000
ADDS, COLD_STARTS = 100, 3


class Writer:
    """Synthetic text with the statistics of real text."""

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
        topic_words = [
            self.words[(topic * 47 + self.rng.randrange(40)) % WORDS] for _ in range(own)
        ]
        return " ".join(common + topic_words)

    def memories(self, count: int) -> Iterator[Memory]:
        for _ in range(count):
            yield Memory(text=self.text(self.rng.randint(24, 43)))


class Store:
    """A worker process with one store in it."""

    def __init__(self, name: str, python: str, folder: Path) -> None:
        environment = {**os.environ, "HOME": str(folder), "OPENBLAS_NUM_THREADS": "1"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.began = time.perf_counter()
        self._process = subprocess.Popen(
            [python, str(HERE / "store_worker.py"), name, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        reply = json.loads(self._process.stdout.readline() or '{"error": "the worker ended"}')
        if "error" in reply:
            raise SystemExit(f"{self._process.args[2]}: {reply['error']}")
        return reply

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=600)


def spread(values: list[float]) -> str:
    ordered = sorted(values)
    return f"p50 {ordered[len(ordered) // 2]:.2f}  p95 {ordered[int(len(ordered) * 0.95)]:.2f} ms"


def fill(store: Store, writer: Writer, size: int, patience: float) -> tuple[float, int]:
    """Returns the CPU seconds that this took and the number of stored memories."""
    cpu, began = 0.0, time.perf_counter()
    for start in range(0, size, BATCH):
        if time.perf_counter() - began > patience:
            return cpu, start
        texts = [memory.text for memory in writer.memories(min(BATCH, size - start))]
        cpu += store.ask(do="add", texts=texts)["cpu"]
    return cpu, size


def cold(name: str, python: str, folder: Path, text: str) -> str:
    """From the start of a process to its first answer."""
    wall, cpu = [], []
    for _ in range(COLD_STARTS):
        store = Store(name, python, folder)
        store.ask(do="search", text=text)
        wall.append(1000 * (time.perf_counter() - store.began))
        cpu.append(1000 * store.ask(do="state")["since_start"])
        store.close()
    return f"{min(wall):.0f} ms ({min(cpu):.0f} ms of CPU)"


def measure(name: str, python: str, size: int, options: argparse.Namespace, folder: Path) -> None:
    store, writer = Store(name, python, folder), Writer(1)
    cpu, stored = fill(store, writer, size, options.patience)
    print(f"{name}, {stored} memories" + (f" of {size}, patience ended" if stored < size else ""))
    print(f"    ingest     {stored / cpu:,.0f} a second of CPU", flush=True)
    query_writer = Writer(2)
    queries = [query_writer.text(30) for _ in range(options.queries)]
    done = [store.ask(do="search", text=text) for text in queries]
    print(f"    search     cpu {spread([1000 * path['cpu'] for path in done])}", flush=True)
    print(f"               wall {spread([1000 * path['wall'] for path in done])}", flush=True)
    adds = [store.ask(do="add", texts=[memory.text]) for memory in writer.memories(ADDS)]
    print(f"    one add    cpu {spread([1000 * path['cpu'] for path in adds])}", flush=True)
    print(f"               wall {spread([1000 * path['wall'] for path in adds])}", flush=True)
    state = store.ask(do="state")
    store.close()
    after = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
    print(f"    disk       {after:.0f} MB      peak RSS {state['rss']:.0f} MB", flush=True)
    print(f"    cold start {cold(name, python, folder, queries[0])}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--memtomem", help="python of a venv with memtomem 0.6.12")
    parser.add_argument("--memory-service", help="python of a venv with mcp-memory-service 12.2.0")
    parser.add_argument("--patience", type=float, default=1_800, help="seconds to fill a store")
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--only", help="the name of one store")
    options = parser.parse_args()
    pythons = {
        "upwell": sys.executable,
        "memtomem": options.memtomem,
        "mcp-memory-service": options.memory_service,
    }
    for size in map(int, options.sizes.split(",")):
        for name, python in pythons.items():
            if python and options.only in (None, name):
                with tempfile.TemporaryDirectory() as folder:
                    measure(name, python, size, options, Path(folder))


if __name__ == "__main__":
    main()
