"""CPU time and memory of processes, read from /proc."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


def cpu_ms(pids: Sequence[int]) -> float:
    """User + system time of the processes, their finished children included."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(field) for field in fields[11:15])
    return ticks * TICK_MS


def rss_mb(pid: int, key: str = "VmRSS") -> float:
    """Resident memory in MB; `VmHWM` is its peak."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no {key} for {pid}")


def clean(folder: Path, **extra: str) -> dict[str, str]:
    """An environment with a home of its own and without the variables of the person who measures:
    PYTHONDONTWRITEBYTECODE alone would make every start several times as long.
    """
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", **extra}


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
    """Run a command to its end. Fails with the output of the command if the command fails."""
    done = subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command[:4])} … failed:\n{done.stdout.decode(errors='replace')}")
