"""Measures the cost of a list of tools: the tokens of five real servers' lists, in full and in
short form.

    python benchmarks/tool_lists.py [--json]

The servers are those of the test suite (npm filesystem, everything and memory; PyPI git and time),
all behind one gateway, listed once with `gateway.lazy_tools_tokens` off and once with it on. Tokens
are estimated as upwell counts them; whatever hosts add to a list is the same for both.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.doors.conftest import write_config  # noqa: E402
from tests.doors.npm import install  # noqa: E402
from tests.doors.peer import Peer  # noqa: E402

from upwell.gateway.routing.tools import server_of  # noqa: E402
from upwell.ground.text.tokens import count  # noqa: E402

LIMITS = {"connect_timeout_seconds": 60.0, "list_wait_seconds": 60.0}
SEEN = ("name", "description", "inputSchema")
"""The parts of a tool that hosts show a model."""


def servers(folder: Path) -> Mapping[str, list[str]]:
    bin_folder = Path(sys.executable).parent
    return {
        "filesystem": [*install.server("filesystem"), str(folder)],
        "everything": install.server("everything"),
        "memory": install.server("memory"),
        "git": [str(bin_folder / "mcp-server-git")],
        "time": [str(bin_folder / "mcp-server-time")],
    }


def listed(folder: Path, most_tokens: int) -> list[dict[str, Any]]:
    home = folder / f"home-{most_tokens}"
    write_config(home, servers(folder), gateway={**LIMITS, "lazy_tools_tokens": most_tokens})
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "UPWELL_HOME": str(home)}
    with Peer([sys.executable, "-m", "upwell", "serve"], env=env, cwd=folder) as peer:
        peer.hello(60.0)
        return list(peer.result("tools/list", {}, 90.0)["tools"])


def tokens(tools: list[dict[str, Any]], server: str) -> tuple[int, int]:
    """The number of a server's tools in a list, and the tokens of their parts that a model sees."""
    own = [tool for tool in tools if server_of(tool["name"]) == server]
    shown = ({member: tool.get(member) for member in SEEN} for tool in own)
    return len(own), sum(count(json.dumps(tool, separators=(",", ":"))) for tool in shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    install.ensure()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole, short = listed(folder, 0), listed(folder, 1)
        names = [*servers(folder), "upwell"]
    rows = {server: (*tokens(whole, server), tokens(short, server)[1]) for server in names}
    rows["all"] = tuple(map(sum, zip(*rows.values(), strict=True)))  # type: ignore[assignment]
    if as_json:
        print(json.dumps(rows))
        return
    print(f"{'server':12} {'tools':>6} {'whole':>8} {'short':>8}")
    for server, (tools, before, after) in rows.items():
        print(f"{server:12} {tools:6} {before:8,} {after:8,}  {after / before:.2f}")


if __name__ == "__main__":
    main()
