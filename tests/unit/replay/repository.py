"""Repositories made for a test, with dates of their own."""

import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.com",
}


def at(day: int, hour: int = 12) -> float:
    """A time in January 2026, seconds since the epoch."""
    return datetime(2026, 1, day, hour, tzinfo=UTC).timestamp()


def git(folder: Path, *args: str, when: float | None = None) -> str:
    stamp = f"@{when or 0:.0f} +0000"
    dated = {"GIT_AUTHOR_DATE": stamp, "GIT_COMMITTER_DATE": stamp}
    done = subprocess.run(
        ["git", "-C", str(folder), *args],
        env=ENVIRONMENT | (dated if when else {}),
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    return folder


def commit(folder: Path, when: float, message: str, files: Mapping[str, str | None]) -> None:
    """Commit these files; None removes one."""
    for name, text in files.items():
        path = folder / name
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message, when=when)
