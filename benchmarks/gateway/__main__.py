"""Measures the cost of upwell's gateway and of other gateways, in one run with one client.

    python benchmarks/gateway [--rounds N] [--only NAME,…] [--contenders NAME,…] [--quick] [--json]
                              [--environment PACKAGE=DIR]…

Contenders: the server itself, upwell's gateway, the server wrapped in its place ("upwell wrap"),
memtomem-stm 0.6.9, FastMCP 4.1.2's proxy, mcp-proxy 0.13 (which only changes the transport).
Environments that are not given are made under `.tools/`; with `--environment upwell=DIR`, another
version of upwell takes part, as "other upwell".
Rounds are interleaved, and the median of the rounds is shown. CPU is the user + system time of
every process below the client; that of the daemon behind a wrapped server is shown apart. The CPU
times and the ratios are reliable; wall times depend on the load of the machine. memtomem-stm runs
without its long-term memory, which would add a process; upwell runs with its own memory. To measure
results that are passed on unchanged, shortening is switched off in both.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import measures
from contenders import OTHER, PEERS, ROOT, UPWELL, WRAP, Contender, contenders
from measures import Figures, Sizes
from report import goals, markdown

sys.path.insert(0, str(ROOT))

from tests.doors.npm import install

KINDS = tuple("small official http kept start flood fitted endurance large beside".split())
ONCE = ("endurance", "flood")
ENDURANCE_CALLS = 10_000
UPWELLS = (UPWELL, OTHER)
PEER_NAMES = "memtomem-stm,FastMCP,mcp-proxy"
SHORTENING = (*UPWELLS, WRAP, "memtomem-stm")
Measure = Callable[[Contender, Path], Figures]


def of_kind(kind: str, sizes: Sizes, files: Path, calls: int) -> Measure:
    """The function that measures one kind. It gives no figures for a contender that lacks the
    ability."""

    def filesystem() -> list[str]:
        return [*install.server("filesystem"), str(files)]

    collected: dict[str, Measure] = {
        "small": lambda contender, folder: measures.small(contender, folder, sizes),
        "official": lambda contender, folder: measures.official(contender, folder, sizes),
        "large": lambda contender, folder: measures.large(contender, folder, sizes),
        "fitted": lambda contender, folder: (
            measures.fitted(contender, folder, sizes) if contender.name in SHORTENING else {}
        ),
        "beside": lambda contender, folder: measures.beside(contender, folder, sizes),
        "kept": lambda contender, folder: (
            measures.kept(contender, folder, sizes) if contender.name in UPWELLS else {}
        ),
        "http": lambda contender, folder: measures.over_http(contender, folder, sizes),
        "start": lambda contender, folder: measures.start_up(contender, filesystem(), folder),
        "endurance": lambda contender, folder: measures.endurance(contender, folder, calls),
        "flood": lambda contender, folder: (
            measures.flood(contender, folder) if contender.name in UPWELLS else {}
        ),
    }
    measure_kind = collected[kind]
    if kind == "http":
        return measure_kind
    return lambda contender, folder: (
        measure_kind(contender, folder) if contender.stdio is not None else {}
    )


def measure(
    selected: list[Contender], kinds: list[str], sizes: Sizes, rounds: int, calls: int
) -> dict[str, dict[str, float]]:
    """Medians over the rounds, by contender. The first round fills caches and is not counted. The
    kinds in `ONCE` have only one round, which counts."""
    collected: dict[str, dict[str, list[float]]] = {contender.name: {} for contender in selected}
    with tempfile.TemporaryDirectory(prefix="upwell-bench-") as scratch:
        files = Path(scratch) / "files"
        files.mkdir()
        for kind in kinds:
            measure_kind = of_kind(kind, sizes, files, calls)
            for number in range(1 if kind in ONCE else rounds + 1):
                for contender in selected:
                    figures = measure_kind(contender, Path(scratch) / contender.name / kind)
                    print(f"{kind} {number} {contender.name}: {figures}", file=sys.stderr)
                    if number or kind in ONCE:
                        for key, value in figures.items():
                            collected[contender.name].setdefault(key, []).append(value)
    return {
        name: {key: statistics.median(values) for key, values in figures.items()}
        for name, figures in collected.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--contenders", default=PEER_NAMES, help="in addition to direct and upwell")
    parser.add_argument("--environment", action="append", default=[], metavar="PACKAGE=DIR")
    parser.add_argument("--quick", action="store_true", help="few calls, to see whether it runs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    kinds = options.only.split(",")
    environments = dict(entry.split("=", 1) for entry in options.environment)
    if unknown := (set(kinds) - set(KINDS)) | (set(environments) - {*PEERS, "upwell"}):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    install.ensure()
    names = {"direct", *UPWELLS, WRAP, *options.contenders.split(",")}
    selected = contenders(
        {name: Path(folder).absolute() for name, folder in environments.items()}, names
    )
    sizes = Sizes(20, 64, 5, 1) if options.quick else Sizes()
    calls = 1000 if options.quick else ENDURANCE_CALLS
    table = measure(selected, kinds, sizes, options.rounds, calls)
    goal_results = goals(table)
    if options.json:
        verdicts = [
            {"goal": goal.what, "value": goal.value, "met": goal.met} for goal in goal_results
        ]
        print(json.dumps({"figures": table, "goals": verdicts}, indent=2, ensure_ascii=False))
    else:
        print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()}")
        print(f"{options.rounds} rounds, medians\n\n{markdown(table)}\n")
        for goal in goal_results:
            print(f"{'met   ' if goal.met else 'MISSED'}  {goal.what}: {goal.value:.2f}")
    return 0 if all(goal.met for goal in goal_results) else 1


if __name__ == "__main__":
    sys.exit(main())
