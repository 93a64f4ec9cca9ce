"""Homes as older versions of upwell left them."""

import hashlib
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path


def moved_by_setup(
    home: Path, files: Sequence[Path], agents: Sequence[str] = ("claude", "codex")
) -> None:
    """Record that it was `setup` of upwell 0.2.0 that moved the servers in these files of agents
    behind the gateway, and not `init`."""
    config = (home / "config.toml").read_text()
    change = {
        "before": None,
        "written": hashlib.sha256(config.encode()).hexdigest(),
        "servers": list(tomllib.loads(config)["server"]),
    }
    record = {
        "hooks": [],
        "clients": list(agents),
        "files": [str(file) for file in files],
        "config": change,
        "learned": {},
    }
    (home / "setup.json").write_text(json.dumps(record))
