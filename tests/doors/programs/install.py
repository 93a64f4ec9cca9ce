"""Other memory programs, each pinned to a version, in a folder of its own below `.tools/programs`.

They write real stores, which tests then import. No account, key or model is needed: a script beside
this file uses fixed vectors instead of an embedding model.
"""

import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from tests.doors.npm.install import ROOT, npm

HERE = Path(__file__).parent
PREFIX = ROOT / ".tools" / "programs"
BASIC_MEMORY = "basic-memory==0.24.1"
CLAUDE_MEM, BUN = "claude-mem@13.25.3", "bun@1.4.5"
MCP_MEMORY_SERVICE = "mcp-memory-service==12.4.0"
MEM0 = "mem0ai==2.2.1"
MEMTOMEM_STM = "memtomem-stm==0.6.9"
# Python may be built without loadable extensions, which sqlite-vec needs.
LOADABLE = "pysqlite3-binary==0.5.4; sys_platform == 'linux'"
_SYSTEM = platform.system().lower()
_CPU = {"x86_64": "x64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())


def python_with(*packages: str, dependencies: bool = True) -> Path:
    """The Python of an environment with these packages."""
    folder = PREFIX / packages[0].replace("==", "-")
    python = folder / "bin" / "python"
    with _exclusively(folder):
        if not (folder / ".ready").exists():
            _run([_uv(), "venv", "-q", "--clear", "--python", sys.executable, str(folder)])
            only = [] if dependencies else ["--no-deps"]
            overrides = ["--override", str(HERE / "overrides.txt")]
            install = [_uv(), "pip", "install", "-q", "--python", str(python)]
            _run([*install, *only, *overrides, *packages])
            (folder / ".ready").touch()
    return python


def claude_mem() -> tuple[Path, Path]:
    """The Bun that claude-mem runs on, and its module that writes memories."""
    folder = PREFIX / CLAUDE_MEM
    with _exclusively(folder):
        if not (folder / ".ready").exists():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "package.json").write_text('{"private": true}')
            npm("install", "--no-save", BUN, folder=folder)
            # Its module is one file; the hundreds of packages around it are not needed.
            npm("pack", CLAUDE_MEM, folder=folder)
            with tarfile.open(next(folder.glob("claude-mem-*.tgz"))) as archive:
                archive.extractall(folder, filter="data")
            (folder / ".ready").touch()
    bun = folder / "node_modules" / "@oven" / f"bun-{_SYSTEM}-{_CPU}" / "bin" / "bun"
    return bun, folder / "package" / "plugin" / "sqlite" / "SessionStore.js"


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
