"""Other memory programs, each pinned to a version, in a folder of its own below `.tools/programs`.

They write real stores, which tests then import. No account, key or model is needed.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from tests.doors.npm.install import ROOT

HERE = Path(__file__).parent
PREFIX = ROOT / ".tools" / "programs"
BASIC_MEMORY = "basic-memory==0.24.1"


def python_with(*packages: str) -> Path:
    """The Python of an environment with these packages."""
    folder = PREFIX / packages[0].replace("==", "-")
    python = folder / "bin" / "python"
    with _exclusively(folder):
        if not (folder / ".ready").exists():
            _run([_uv(), "venv", "-q", "--clear", "--python", sys.executable, str(folder)])
            overrides = ["--override", str(HERE / "overrides.txt")]
            install = [_uv(), "pip", "install", "-q", "--python", str(python)]
            _run([*install, *overrides, *packages])
            (folder / ".ready").touch()
    return python


def _exclusively(folder: Path) -> FileLock:
    PREFIX.mkdir(parents=True, exist_ok=True)
    return FileLock(f"{folder}.lock")


def _uv() -> str:
    return shutil.which("uv") or str(ROOT / ".tools" / "uv" / "bin" / "uv")


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900
    )
    if done.returncode:
        sys.exit(f"{' '.join(command[:4])} failed:\n{done.stdout}{done.stderr}")
