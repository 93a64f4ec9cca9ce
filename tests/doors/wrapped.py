"""A server behind `upwell wrap`, as an agent starts it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.doors.agent import Agent
from tests.doors.hooked import House
from tests.doors.peer import Peer

WRAP = [sys.executable, "-P", "-m", "upwell", "wrap", "--"]


def wrapped[Client: Peer](
    house: House, command: Sequence[str], client: type[Client] = Agent, **options: Any
) -> Client:
    """A client in front of the relay and this server."""
    return client(
        [*WRAP, *command],
        env=house.environment,
        cwd=house.project,
        errors=house.project.parent / "wrap.stderr",
        **options,
    )


def direct[Client: Peer](
    house: House, command: Sequence[str], client: type[Client] = Agent, **options: Any
) -> Client:
    """The same client in front of the server itself."""
    return client(command, env=house.environment, cwd=house.project, **options)


def rss_mb(peer: Peer) -> float:
    """Resident memory of the relay, in MB."""
    for line in Path(f"/proc/{peer.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the relay has ended")
