"""Measures the time of one decision: prompts and calls go through the product's own surfacer.

    python benchmarks/decision.py [--memories 100000] [--rounds 60] [--home FOLDER] [--profile]

The memories are synthetic, with the word statistics of real text (`store.py`). A third of them name
Ines and a fifteenth name Tariq, as in the notes of a small team. Prompts with a "common name" name
Ines, and those with a "rarer name" name Tariq. Wall time is that of `Surfacer.surface`, in one
process, without the server in front. CPU time is that of all threads, and includes the decision's
record, which is written half a second later. `--home` keeps the store for the next run.
"""

import argparse
import asyncio
import cProfile
import pstats
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from store import Writer
from upwell import Cue
from upwell.app import App, Settings, build
from upwell.ground.types.memory import Memory

COMMON, RARER = "Ines", "Tariq"
FLAGS = {
    "surface.moments": "all",
    "surface.dedup_ttl_seconds": 0,
    "surface.rate_per_minute": 1_000_000,
    "surface.cooldown_seconds": 0,
}
BATCH = 5_000
RECORDED_SECONDS = 0.6
"""After this time, a decision has been recorded."""


def memories(count: int, seed: int) -> list[Memory]:
    writer = Writer(seed)
    created = []
    for number, memory in enumerate(writer.memories(count)):
        name = COMMON if number % 3 == 0 else RARER if number % 10 == 1 else "Someone"
        created.append(Memory(text=f"{name} says {memory.text}"))
    return created


def cues(rounds: int, seed: int) -> dict[str, list[Cue]]:
    """The cues of each case; every cue has a session of its own, in each run."""
    writer, rng, run = Writer(seed), random.Random(seed), time.time_ns()

    def prompt(name: str) -> str:
        return f"what did {name + ' say' if name else 'we decide'} about {writer.text(8)}?"

    cases = {"prompt": "", "prompt, common name": COMMON, "prompt, rarer name": RARER}
    cues_by_case = {
        case: [
            Cue(door="prompt", text=prompt(name), session=f"{case}{n}-{run}") for n in range(rounds)
        ]
        for case, name in cases.items()
    }
    cues_by_case["only a common name"] = [
        Cue(door="prompt", text=f"what about {COMMON}?", session=f"o{n}-{run}")
        for n in range(rounds)
    ]
    cues_by_case["tool"] = [
        Cue(door="tool", tool="Grep", args={"pattern": writer.text(2)}, session=f"t{n}-{run}")
        for n in range(rounds)
    ]
    for case in cues_by_case.values():
        rng.shuffle(case)
    return cues_by_case


async def measure(app: App, cases: dict[str, list[Cue]]) -> dict[str, list[tuple[float, float]]]:
    """(wall, CPU) milliseconds of each decision; the cases take turns."""
    for case in cases.values():
        await app.surfacer.surface(case[0])
    await asyncio.sleep(RECORDED_SECONDS)
    took: dict[str, list[tuple[float, float]]] = {case: [] for case in cases}
    for turn in zip(*cases.values(), strict=True):
        for case, cue in zip(cases, turn, strict=True):
            wall, cpu = time.perf_counter(), time.process_time()
            await app.surfacer.surface(cue)
            wall = time.perf_counter() - wall
            await asyncio.sleep(RECORDED_SECONDS)
            took[case].append((wall * 1e3, (time.process_time() - cpu) * 1e3))
    return took


def table(took: dict[str, list[tuple[float, float]]]) -> None:
    print("| case | wall ms p50 | p95 | CPU ms p50 | p95 |\n|---|---|---|---|---|")
    for case, times in took.items():
        walls, cpus = ([pair[at] for pair in times] for at in (0, 1))
        cells = [f"{value:.1f}" for values in (walls, cpus) for value in _quantiles(values)]
        print(f"| {case} | {' | '.join(cells)} |")


def _quantiles(values: Sequence[float]) -> tuple[float, float]:
    return statistics.median(values), sorted(values)[int(0.95 * len(values))]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        app = await build(Settings(home=options.home or Path(temporary), flags=FLAGS))
        if not await app.memory.list(limit=1):
            created = memories(options.memories, 1)
            for first in range(0, len(created), BATCH):
                await app.memory.add_many(created[first : first + BATCH])
        cases = cues(options.rounds, 2)
        profile = cProfile.Profile()
        if options.profile:
            profile.enable()
        took = await measure(app, cases)
        profile.disable()
        table(took)
        if options.profile:
            pstats.Stats(profile).sort_stats("cumulative").print_stats(45)
        await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
