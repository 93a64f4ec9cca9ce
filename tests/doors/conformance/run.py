"""The official conformance suite against the reference server, directly and through upwell.

The suite speaks HTTP. A server wrapped in its place speaks stdio, so the gateway stands in front of
it; what the relay loses is what is lost beyond the gateway alone.

    python tests/doors/conformance/run.py [--suite VERSION] [--scenario NAME] [--json] [--verbose]

Without `--suite`, it runs both pinned versions: the released one, and the alpha of the next one,
which knows the protocol of 2026-07-28. Exits 1 if a check that passes directly fails through upwell
and is not in `KNOWN`, or if a version of the suite makes no checks.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from tests.doors.conformance.letting_in import let_in  # noqa: E402
from tests.doors.conftest import write_config  # noqa: E402
from tests.doors.npm import install  # noqa: E402

REFERENCE = [sys.executable, str(Path(__file__).parent / "reference.py")]
SUITES = {
    "0.1.16": install.PACKAGES / "conformance",
    "0.2.0-alpha.12": install.PREFIX / "node_modules" / "conformance-alpha",
}
"""By version, as `tests/doors/npm/package.json` pins them."""
Checks = Mapping[str, str]
_INPUT = "input-required-result"
_ONE_BY_ONE = (
    "over stdio the server speaks the handshake era, where it asks one thing after another"
)
_UNNAMED = "over stdio the server speaks the handshake era, where its questions have no names"
KNOWN: Mapping[str, str] = {
    f"{_INPUT}-basic-elicitation: sep-2322-elicitation-incomplete": _UNNAMED,
    f"{_INPUT}-basic-elicitation: sep-2322-elicitation-complete": _UNNAMED,
    f"{_INPUT}-ignore-extra-params: sep-2322-ignore-unexpected-params": _UNNAMED,
    f"{_INPUT}-multiple-input-requests: sep-2322-multiple-inputs-incomplete": _ONE_BY_ONE,
    f"{_INPUT}-multiple-input-requests: sep-2322-multiple-inputs-complete": _ONE_BY_ONE,
}
"""Checks that cannot pass with a server on stdio, and the reasons. `initialize` decides the era of
such a connection (docs/decisions.md); over HTTP every request has its own."""


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def program(command: list[str], port: int, env: Mapping[str, str], log: Path) -> Iterator[None]:
    """A listening server, ended on exit."""
    with log.open("wb") as errors:
        running = subprocess.Popen(command, env=dict(env), stdout=errors, stderr=errors)
    try:
        end = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5)
                break
            except urllib.error.HTTPError:
                break
            except OSError:
                if running.poll() is not None or time.monotonic() > end:
                    raise SystemExit(log.read_text(errors="replace")) from None
                time.sleep(0.1)
        yield
    finally:
        running.terminate()
        running.wait(30)


@dataclass(frozen=True)
class Run:
    """One version of the suite, the folder for its results, and the requested scenario ("" for
    all)."""

    version: str
    folder: Path
    scenario: str
    verbose: bool

    def of(self, port: int, name: str) -> Checks:
        """Run the suite against the server on this port. Returns outcomes by scenario and check."""
        command = [install.node(), str(SUITES[self.version] / "dist" / "index.js"), "server"]
        command += ["--url", f"http://localhost:{port}/mcp"]
        command += ["--scenario", self.scenario] if self.scenario else ["--suite", "all"]
        results = self.folder / name
        results.mkdir()
        done = subprocess.run(
            [*command, "-o", str(results)],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        if self.verbose:
            print(done.stdout[-6000:], done.stderr[-2000:])
        return dict(outcomes(results))


def outcomes(results: Path) -> Iterator[tuple[str, str]]:
    """Each check that passed or failed. If a scenario repeats a check, the names are numbered."""
    for file in sorted(results.rglob("checks.json")):
        name = re.sub(r"^server-|-\d{4}-\d{2}-\d{2}T.*$", "", file.parent.name)
        seen: Counter[str] = Counter()
        for check in json.loads(file.read_text()):
            if check["status"] in ("SUCCESS", "FAILURE"):
                seen[check["id"]] += 1
                number = f" {seen[check['id']]}" if seen[check["id"]] > 1 else ""
                yield f"{name}: {check['id']}{number}", check["status"]


def directly(run: Run) -> Checks:
    port = free_port()
    with program([*REFERENCE, "--port", str(port)], port, os.environ, run.folder / "direct.log"):
        return run.of(port, "direct")


def through(run: Run, name: str, server: Mapping[str, object]) -> Checks:
    """Run the suite through upwell; a proxy adds upwell's token to each request."""
    home, port = run.folder / f"{name}-home", free_port()
    write_config(
        home,
        {"reference": {**server, "prefix": False}},
        compress={"strategy": "none"},
        surface={"enabled": False},
    )
    env = {**os.environ, "UPWELL_HOME": str(home)}
    command = [sys.executable, "-m", "upwell", "serve", "--http", f"127.0.0.1:{port}"]
    with program(command, port, env, run.folder / f"{name}.log"):
        token = (home / "token").read_text().strip()
        with let_in(port, token) as door:
            return run.of(door, name)


def compared(run: Run) -> dict[str, Any]:
    """How many checks pass directly and through upwell, which ones upwell loses, and which ones
    fail even without upwell."""
    direct = directly(run)
    stdio = through(run, "stdio", {"command": REFERENCE[0], "args": REFERENCE[1:]})
    wrap = ["-P", "-m", "upwell", "wrap", "--", *REFERENCE]
    env = {"UPWELL_HOME": str(run.folder / "wrapped-home")}
    wrapped = through(run, "wrapped", {"command": sys.executable, "args": wrap, "env": env})
    port = free_port()
    with program([*REFERENCE, "--port", str(port)], port, os.environ, run.folder / "behind.log"):
        http = through(run, "http", {"url": f"http://127.0.0.1:{port}/mcp"})
    ways = {"stdio behind": stdio, "wrapped stdio behind": wrapped, "HTTP behind": http}
    passing = passed(direct)
    return {
        "checks": len(direct),
        "direct": len(passing),
        **{f"through, {way}": len(passed(result)) for way, result in ways.items()},
        "lost": {
            "stdio behind": sorted(passing - passed(stdio) - set(KNOWN)),
            "wrapped": sorted(passed(stdio) - passed(wrapped)),
            "HTTP behind": sorted(passing - passed(http)),
        },
        "not in the handshake era": sorted((passing - passed(stdio)) & set(KNOWN)),
        "failing directly": sorted(set(direct) - passing),
    }


def passed(found: Checks) -> set[str]:
    return {name for name, outcome in found.items() if outcome == "SUCCESS"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", choices=SUITES, help="only this version")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--scenario", default="")
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    install.ensure()
    figures = {}
    for version in [asked.suite] if asked.suite else SUITES:
        with tempfile.TemporaryDirectory() as folder:
            run = Run(version, Path(folder), asked.scenario, asked.verbose)
            figures[version] = compared(run)
    print(json.dumps(figures, indent=None if asked.json else 2))
    ran = all(figure["checks"] for figure in figures.values())
    return 0 if ran and not any(any(entry["lost"].values()) for entry in figures.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
