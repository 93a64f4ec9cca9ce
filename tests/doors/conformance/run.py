"""The official conformance suite against the reference server, directly and through upwell.

    python tests/doors/conformance/run.py [--json] [--scenario NAME] [--verbose]

Exits 1 when a check that passes directly does not pass through upwell.
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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from tests.doors.conformance.letting_in import let_in  # noqa: E402
from tests.doors.conftest import write_config  # noqa: E402
from tests.doors.npm import install  # noqa: E402

REFERENCE = [sys.executable, str(Path(__file__).parent / "reference.py")]
SUITE = install.PACKAGES / "conformance" / "dist" / "index.js"
Checks = Mapping[str, str]


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def program(command: list[str], port: int, env: Mapping[str, str], log: Path) -> Iterator[None]:
    """A server that listens, while it is needed."""
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
        running.wait(10)


def suite(port: int, folder: Path, scenario: str, *, verbose: bool) -> Checks:
    """What the suite says about the server on this port: outcome by scenario and check."""
    command = [install.node(), str(SUITE), "server", "--url", f"http://localhost:{port}/mcp"]
    command += ["--scenario", scenario] if scenario else ["--suite", "all"]
    folder.mkdir()
    done = subprocess.run(
        [*command, "-o", str(folder)], capture_output=True, text=True, timeout=900, check=False
    )
    if verbose:
        print(done.stdout[-6000:], done.stderr[-2000:])
    found: dict[str, str] = {}
    for file in sorted(folder.rglob("checks.json")):
        name = re.sub(r"^server-|-\d{4}-\d{2}-\d{2}T.*$", "", file.parent.name)
        for number, check in enumerate(json.loads(file.read_text())):
            if check["status"] in ("SUCCESS", "FAILURE"):
                found[f"{name}: {check['id']} {number}"] = check["status"]
    return found


def directly(folder: Path, scenario: str, *, verbose: bool) -> Checks:
    port = free_port()
    with program([*REFERENCE, "--port", str(port)], port, os.environ, folder / "direct.log"):
        return suite(port, folder / "direct", scenario, verbose=verbose)


def through(folder: Path, scenario: str, name: str, server: object, *, verbose: bool) -> Checks:
    """Through upwell, whose token is put on each request by a door in between."""
    home, port = folder / f"{name}-home", free_port()
    write_config(
        home,
        {"reference": {**server, "prefix": False}},  # type: ignore[dict-item]
        gateway={"list_wait_seconds": 30.0},
        compress={"strategy": "none"},
        surface={"enabled": False},
    )
    env = {**os.environ, "UPWELL_HOME": str(home)}
    command = [sys.executable, "-m", "upwell", "serve", "--http", f"127.0.0.1:{port}"]
    with program(command, port, env, folder / f"{name}.log"):
        token = (home / "token").read_text().strip()
        with let_in(port, token) as door:
            return suite(door, folder / name, scenario, verbose=verbose)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--scenario", default="")
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    install.ensure()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        stdio = {"command": REFERENCE[0], "args": REFERENCE[1:]}
        direct = directly(folder, asked.scenario, verbose=asked.verbose)
        ours = through(folder, asked.scenario, "stdio", stdio, verbose=asked.verbose)
        port = free_port()
        with program([*REFERENCE, "--port", str(port)], port, os.environ, folder / "behind.log"):
            http = {"url": f"http://127.0.0.1:{port}/mcp"}
            over_http = through(folder, asked.scenario, "http", http, verbose=asked.verbose)
    passing = {name for name, outcome in direct.items() if outcome == "SUCCESS"}
    ways = {"stdio behind": ours, "HTTP behind": over_http}
    lost = {
        way: sorted(name for name in passing if found.get(name) != "SUCCESS")
        for way, found in ways.items()
    }
    figures = {
        "direct": len(passing),
        **{
            f"through, {way}": sum(outcome == "SUCCESS" for outcome in found.values())
            for way, found in ways.items()
        },
        "checks": len(direct),
        "lost": lost,
        "failing directly": sorted(set(direct) - passing),
    }
    print(json.dumps(figures, indent=None if asked.json else 2))
    return 1 if any(lost.values()) or not direct else 0


if __name__ == "__main__":
    sys.exit(main())
