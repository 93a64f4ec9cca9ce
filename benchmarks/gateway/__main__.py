"""The cost of a gateway, beside other gateways in one run with one client.

    python benchmarks/gateway [--rounds N] [--only NAME,…] [--contenders NAME,…] [--quick] [--json]
                              [--environment PACKAGE=DIR]…

Contenders: the server itself, upwell, memtomem-stm 0.6.9, FastMCP 4.1.2's proxy, mcp-proxy 0.13
(which only changes the transport). Environments that are not given are made under `.tools/`.
Rounds are interleaved, and the median of the rounds is shown. CPU is user + system time of every
process below the client: trust that, and the ratios; wall times depend on what else the machine is
doing. memtomem-stm runs without its long-term memory, which would add a process; upwell runs
with its own. Where results are passed on as they are, shortening is off for both.
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
from contenders import PEERS, ROOT, Contender, contenders
from measures import Figures, Sizes
from report import goals, markdown

sys.path.insert(0, str(ROOT))

from tests.doors.npm import install

KINDS = tuple("small official http kept start flood fitted endurance large".split())
ONCE = ("endurance", "flood")
ENDURANCE_CALLS = 10_000
SHORTENING = ("upwell", "memtomem-stm")
Measure = Callable[[Contender, Path], Figures]


def of_kind(kind: str, sizes: Sizes, files: Path, calls: int) -> Measure:
    """Measure one kind; a contender without that ability gets no figures."""

    def filesystem() -> list[str]:
        return [*install.server("filesystem"), str(files)]

    collected: dict[str, Measure] = {
        "small": lambda one, folder: measures.small(one, folder, sizes),
        "official": lambda one, folder: measures.official(one, folder, sizes),
        "large": lambda one, folder: measures.large(one, folder, sizes),
        "fitted": lambda one, folder: (
            measures.fitted(one, folder, sizes) if one.name in SHORTENING else {}
        ),
        "kept": lambda one, folder: (
            measures.kept(one, folder, sizes) if one.name == "upwell" else {}
        ),
        "http": lambda one, folder: measures.over_http(one, folder, sizes),
        "start": lambda one, folder: measures.start_up(one, filesystem(), folder),
        "endurance": lambda one, folder: measures.endurance(one, folder, calls),
        "flood": lambda one, folder: measures.flood(one, folder) if one.name == "upwell" else {},
    }
    measure_kind = collected[kind]
    if kind == "http":
        return measure_kind
    return lambda one, folder: measure_kind(one, folder) if one.stdio is not None else {}


def measure(
    selected: list[Contender], kinds: list[str], sizes: Sizes, rounds: int, calls: int
) -> dict[str, dict[str, float]]:
    """Medians over the rounds, by contender. The first round fills caches and is not counted."""
    collected: dict[str, dict[str, list[float]]] = {one.name: {} for one in selected}
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
    parser.add_argument("--contenders", default="", help="beside direct and upwell; all if empty")
    parser.add_argument("--environment", action="append", default=[], metavar="PACKAGE=DIR")
    parser.add_argument("--quick", action="store_true", help="few calls: does it run?")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    kinds = options.only.split(",")
    environments = dict(one.split("=", 1) for one in options.environment)
    if unknown := (set(kinds) - set(KINDS)) | (set(environments) - set(PEERS)):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    install.ensure()
    selected = contenders({name: Path(folder).absolute() for name, folder in environments.items()})
    if options.contenders:
        names = {"direct", "upwell", *options.contenders.split(",")}
        selected = [one for one in selected if one.name in names]
    sizes = Sizes(20, 64, 5, 1) if options.quick else Sizes()
    calls = 1000 if options.quick else ENDURANCE_CALLS
    table = measure(selected, kinds, sizes, options.rounds, calls)
    goal_results = goals(table)
    if options.json:
        verdicts = [{"goal": one.what, "value": one.value, "met": one.met} for one in goal_results]
        print(json.dumps({"figures": table, "goals": verdicts}, indent=2, ensure_ascii=False))
    else:
        print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()}")
        print(f"{options.rounds} rounds, medians\n\n{markdown(table)}\n")
        for one in goal_results:
            print(f"{'met   ' if one.met else 'MISSED'}  {one.what}: {one.value:.2f}")
    return 0 if all(one.met for one in goal_results) else 1


if __name__ == "__main__":
    sys.exit(main())
