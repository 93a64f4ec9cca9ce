"""Rounds of kill -9: two processes write, one reads, and all are killed at random moments."""

import os
import random
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

SLOW_ROUNDS = int(os.environ.get("UPWELL_KILL_ROUNDS", "200"))
ROUNDS_A_FILE = 100
"""After this many rounds a new file is begun, so that later rounds do not take longer."""


@dataclass(slots=True)
class Tally:
    """The totals of the rounds, printed at the end (`pytest -s`)."""

    rounds: int = 0
    acknowledged: int = 0
    unacknowledged: int = 0
    files: list[Path] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Scripts:
    """Programs whose argument is the file. They print `ready` once they run, and never end. The
    writer has its own name as a second argument, and prints a line for each acknowledged write. The
    reader fails when it sees a torn state."""

    writer: str
    reader: str


def start(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # unbuffered: otherwise `kill` would miss what `ready` had read ahead
    )


def ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n", process.stderr and process.stderr.read()


def kill(process: subprocess.Popen[bytes]) -> list[str]:
    """Kill the program. Returns the complete lines that it printed. Fails if the program had ended
    before or has written to stderr."""
    assert process.poll() is None, process.stderr and process.stderr.read()
    process.kill()
    out, complaint = process.communicate()
    assert not complaint, complaint
    return [line for line in out.decode().split("\n")[:-1] if line]


def rounds(
    folder: Path, name: str, scripts: Scripts, kept: Callable[[Path], Collection[str]], count: int
) -> Tally:
    """Run this many rounds on files called `name`. `kept` opens a file as a new process would, and
    returns its entries. Every acknowledged entry must exist exactly once. A round may leave two
    more entries, because each writer may be killed just before an acknowledgement.
    """
    rng, tally = random.Random(7), Tally()
    acknowledged: set[str] = set()
    extra = 0
    for number in range(count):
        if number % ROUNDS_A_FILE == 0:
            (folder / f"{number}").mkdir()
            tally.files.append(folder / f"{number}" / name)
            acknowledged, extra = set(), 0
        path = tally.files[-1]
        acknowledged |= set(one_round(rng, scripts, path, f"r{number}"))
        other = kept(path)
        assert len(other) == len(set(other))
        assert acknowledged <= set(other), acknowledged - set(other)
        under_way = len(other) - len(acknowledged)
        assert under_way - extra <= 2, "of a round, what the two had under way may be there too"
        extra = under_way
        tally.rounds += 1
        if (number + 1) % ROUNDS_A_FILE == 0 or number + 1 == count:
            tally.acknowledged += len(acknowledged)
            tally.unacknowledged += extra
    assert tally.acknowledged > count, "they were ended before they did anything"
    assert not [entry for path in tally.files for entry in path.parent.glob("*.corrupt-*")]
    print(
        f"{name}: {tally.rounds} rounds, {tally.acknowledged} acknowledged, 0 lost, "
        f"{tally.unacknowledged} kept that were under way"
    )
    return tally


def one_round(rng: random.Random, scripts: Scripts, path: Path, name: str) -> list[str]:
    """Run one round. Returns the writes that were acknowledged."""
    writers = [start(scripts.writer, str(path), f"{name}w{i}") for i in range(2)]
    reader = start(scripts.reader, str(path))
    texts: list[str] = []
    try:
        for process in (*writers, reader):
            ready(process)
        time.sleep(rng.uniform(0.02, 0.25))
        for process in rng.sample([*writers, reader], 3):
            lines = kill(process)
            texts += lines if process is not reader else []
            time.sleep(rng.choice((0.0, rng.uniform(0.0, 0.05))))
    finally:
        for process in (*writers, reader):
            process.kill()
            process.communicate()
    return texts
