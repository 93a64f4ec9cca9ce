"""What a deployment costs, computed from figures that `scale.py` measured.

    .venv/bin/python benchmarks/scale.py > run.jsonl
    .venv/bin/python benchmarks/cost_model.py run.jsonl [--memories 1e9 --tenants 1e5]

Everything here is arithmetic on the measured figures and the assumptions printed with the result;
nothing at these sizes was run. A decision costs what it costs in a tenant of the mean size: every
index begins with the tenant, so the rows of others only add levels to the B-trees. The model raises
the database's CPU by one part in `LEVEL_PARTS` for each further level.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log
from pathlib import Path
from typing import Any

FAN_OUT = 200
"""Keys per page of a B-tree of 8 KB with keys of about 35 bytes."""
LEVEL_PARTS = 8
"""Each further level of the B-trees adds one part in this many to the CPU of the database. This is
an estimate."""
BYTES_PER_MEMORY = 6_700
"""Rows and indexes of a memory of 30 words: pg_total_relation_size of all tables after `scale.py`
had stored 4,000 memories, per memory."""
CORES_OF_A_REPLICA = 1.0
"""A replica is one process and uses one core."""
BUSY = 0.7
"""The share of a core that is used on average."""
DECISIONS_PER_DEVELOPER_DAY = 300
PEAK = 4.0
"""The busiest hour compared with the mean of a working day of ten hours."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured in a store of `memories`: the CPU milliseconds of a decision in the gateway
    and in the database, those of the database for storing a memory (`store_ms`), and the messages
    to the database per decision (`trips`)."""

    memories: int
    gateway_ms: float
    database_ms: float
    store_ms: float
    trips: float


@dataclass(frozen=True, slots=True)
class Sized:
    """A deployment."""

    memories: float
    tenants: float
    replicas: int
    gateway_ms: float
    database_ms: float
    per_second: float
    developers: float
    database_cores: float
    terabytes: float
    connections: int


def measured_in(lines: Sequence[str]) -> Measured:
    """Read the figures of a run: those of the largest store with one client and without a proxy.
    Only `trips` comes from the series with a proxy."""
    rows = [json.loads(line) for line in lines if line.strip().startswith("{")]
    series = [row for row in rows if row.get("store") == "postgres" and row["clients"] == 1]
    chosen = max(series, key=lambda row: (row["memories"], -row["tenants"]))
    behind = [row for row in rows if row.get("store") == "postgres, proxy" and row["said"]]
    proxied = [row["trips"] for row in behind]
    stored = [row for row in rows if row.get("ingest") == "postgres" and "server_cpu_ms" in row]
    return Measured(
        memories=chosen["memories"] // chosen["tenants"],
        gateway_ms=chosen["cpu"],
        database_ms=chosen["server_cpu"],
        store_ms=stored[-1]["server_cpu_ms"] if stored else 0.0,
        trips=min(proxied, default=0.0),
    )


def levels(rows: float) -> int:
    """The levels of a B-tree."""
    return max(1, ceil(log(max(rows, 2), FAN_OUT)))


def sized(base: Measured, memories: float, tenants: float, replicas: int) -> Sized:
    """Extrapolate a deployment in which the replicas are the limit."""
    words = 30
    deeper = levels(memories * words) - levels(base.memories * words)
    database = base.database_ms * (1 + deeper / LEVEL_PARTS)
    per_second = replicas * CORES_OF_A_REPLICA * BUSY * 1e3 / base.gateway_ms
    a_day = per_second / PEAK * 36_000
    return Sized(
        memories=memories,
        tenants=tenants,
        replicas=replicas,
        gateway_ms=base.gateway_ms,
        database_ms=database,
        per_second=per_second,
        developers=a_day / DECISIONS_PER_DEVELOPER_DAY,
        database_cores=per_second * database / 1e3 / BUSY,
        terabytes=memories * BYTES_PER_MEMORY / 1e12,
        connections=replicas * 8,
    )


STEPS = ((1e5, 1, 2), (1e6, 1e3, 4), (1e7, 1e4, 20), (1e8, 1e4, 100), (1e9, 1e5, 1_000))


def report(base: Measured, steps: Sequence[tuple[float, float, int]]) -> None:
    print(
        f"measured in a store of {base.memories:,}: {base.gateway_ms:.1f} ms of CPU in the gateway,"
    )
    print(f"{base.database_ms:.1f} in the database, {base.trips:.0f} messages to it a decision;")
    print(f"storing a memory {base.store_ms:.1f} ms in the database")
    print(f"assumed: replicas {BUSY:.0%} busy; {DECISIONS_PER_DEVELOPER_DAY} decisions a developer")
    print(
        f"and day, {PEAK:g} times the mean in the busiest hour; {BYTES_PER_MEMORY:,} bytes a memory"
    )
    columns = ("memories", "tenants", "replicas", "ms/decision", "decisions/s", "developers")
    print(*(f"{name:>12}" for name in (*columns, "db cores", "TB", "db connections")))
    for step in steps:
        row = sized(base, *step)
        shown: Mapping[str, Any] = {
            "memories": f"{row.memories:.0e}",
            "tenants": f"{row.tenants:.0e}",
            "replicas": f"{row.replicas:,}",
            "cpu": f"{row.gateway_ms + row.database_ms:.1f}",
            "rate": f"{row.per_second:,.0f}",
            "developers": f"{row.developers:,.0f}",
            "cores": f"{row.database_cores:,.0f}",
            "tb": f"{row.terabytes:.3g}",
            "connections": f"{row.connections:,}",
        }
        print(*(f"{value:>12}" for value in shown.values()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="the output of scale.py")
    parser.add_argument("--memories", type=float)
    parser.add_argument("--tenants", type=float, default=1)
    parser.add_argument("--replicas", type=int, default=2)
    options = parser.parse_args()
    steps = [(options.memories, options.tenants, options.replicas)] if options.memories else STEPS
    report(measured_in(options.run.read_text().splitlines()), steps)
