"""The compared ways to reach a server, each with its own defaults."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from processes import clean, run

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
UPWELL, WRAP, OTHER = "upwell", "upwell wrap", "other upwell"
PEERS = {"memtomem-stm": "0.6.9", "mcp-proxy": "0.13.0", "fastmcp": "4.1.2"}
MEMORIES = [
    "The settlement job must run before midnight UTC.",
    "Deploys to production need two approvals.",
    "The cache is flushed by the nightly cron on host heron.",
]
Command = tuple[list[str], Mapping[str, str]]
BackgroundWork = Sequence[str] | str
"""The server: a command line, or an address."""
KEPT = """
[cache]
tools = ["up__say"]
"""
PASSING = """
[compress]
strategy = "none"
"""


@dataclass(frozen=True)
class Contender:
    """`stdio(server, folder, config)` is the command that serves on stdio, `http(server, folder,
    port)` the one that listens; None if the contender cannot do that. `prefix` is the prefix of its
    tool names; `config` contains upwell's settings that differ from the defaults. `helpers(folder)`
    are processes that work for the contender without being its children.
    """

    name: str
    prefix: str = ""
    stdio: Callable[[Sequence[str], Path, str], Command] | None = None
    http: Callable[[BackgroundWork, Path, int], Command | None] | None = None
    helpers: Callable[[Path], Sequence[int]] = lambda folder: ()


def direct(server: Sequence[str], folder: Path, config: str) -> Command:
    return list(server), clean(folder)


def upwell(name: str, python: str) -> Contender:
    """The upwell that is installed for a Python. Its home is made once, with the server and a few
    memories."""

    def home(background: BackgroundWork, folder: Path, config: str) -> Mapping[str, str]:
        home = folder / "upwell"
        env = clean(folder, UPWELL_HOME=str(home))
        if not home.exists():
            server_args = (
                ["--url", background] if isinstance(background, str) else ["--", *background]
            )
            run([python, "-m", "upwell", "add", "up", *server_args], env)
            with (home / "config.toml").open("a") as file:
                file.write(config)
            for text in MEMORIES:
                run([python, "-m", "upwell", "remember", text], env)
        return env

    def stdio(server: Sequence[str], folder: Path, config: str) -> Command:
        return [python, "-m", "upwell", "serve"], home(server, folder, config)

    def http(background: BackgroundWork, folder: Path, port: int) -> Command:
        command = [python, "-m", "upwell", "serve", "--http", f"127.0.0.1:{port}"]
        return command, home(background, folder, "")

    return Contender(name, "up__", stdio=stdio, http=http)


def wrap() -> Contender:
    """A server wrapped in its place, with a running daemon."""
    python = sys.executable

    def stdio(server: Sequence[str], folder: Path, config: str) -> Command:
        home = folder / "upwell"
        env = clean(folder, UPWELL_HOME=str(home))
        if not home.exists():
            home.mkdir(mode=0o700, parents=True)
            (home / "config.toml").write_text(config)
            for text in MEMORIES:
                run([python, "-m", "upwell", "remember", text], env)
        run([python, "-m", "upwell", "daemon", "start"], env)
        return [python, "-m", "upwell", "wrap", "--", *server], env

    def helpers(folder: Path) -> list[int]:
        from tests.doors.peer import processes

        from upwell.hook.control import daemon_at

        daemon = daemon_at(str(folder / "upwell"))
        return processes(daemon.pid) if daemon else []

    return Contender(WRAP, stdio=stdio, helpers=helpers)


def memtomem_stm(venv: Path) -> Contender:
    """memtomem-stm without its long-term memory, which would need another process."""

    def serve(server: Sequence[str], folder: Path, config: str) -> Command:
        path = folder / "stm_proxy.json"
        prefix = "MEMTOMEM_STM_"
        settings = {
            "DATA_DIR": str(folder / "memtomem"),
            "PROXY__ENABLED": "true",
            "PROXY__CONFIG_PATH": str(path),
            "SURFACING__ENABLED": "false",
        }
        env = clean(folder, **{prefix + key: value for key, value in settings.items()})
        if not path.exists():
            command, *args = server
            add = [str(venv / "bin" / "mms"), "add", "up", "--config", str(path), "--prefix", "up"]
            add += ["--command", command, "--args", " ".join(args)]
            run([*add, *(["--compression", "none"] if config == PASSING else [])], env)
        return [str(venv / "bin" / "memtomem-stm")], env

    return Contender("memtomem-stm", "up__", stdio=serve)


def fastmcp(venv: Path) -> Contender:
    command = [str(venv / "bin" / "python"), str(HERE / "fastmcp_proxy.py")]

    def stdio(server: Sequence[str], folder: Path, config: str) -> Command:
        return [*command, *server], clean(folder)

    def http(background: BackgroundWork, folder: Path, port: int) -> Command:
        server_args = ["--url", background] if isinstance(background, str) else list(background)
        return [*command, "--port", str(port), *server_args], clean(folder)

    return Contender("FastMCP", stdio=stdio, http=http)


def mcp_proxy(venv: Path) -> Contender:
    """mcp-proxy, which only changes the transport: here HTTP in front of stdio."""

    def http(background: BackgroundWork, folder: Path, port: int) -> Command | None:
        if isinstance(background, str):
            return None
        command = [str(venv / "bin" / "mcp-proxy"), "--port", str(port), "--pass-environment", "--"]
        return [*command, *background], clean(folder)

    return Contender("mcp-proxy", http=http)


def contenders(environments: Mapping[str, Path], names: Container[str]) -> list[Contender]:
    """The contenders of these names. Missing environments are created under `.tools/`, except that
    of another upwell, which takes part only if it is given.
    """
    makers: dict[str, Callable[[], Contender]] = {
        "direct": lambda: Contender("direct", stdio=direct),
        UPWELL: lambda: upwell(UPWELL, sys.executable),
        WRAP: wrap,
    }
    if other := environments.get("upwell"):
        makers[OTHER] = lambda: upwell(OTHER, str(other / "bin" / "python"))
    makers |= {
        "memtomem-stm": lambda: memtomem_stm(environment("memtomem-stm", environments)),
        "FastMCP": lambda: fastmcp(environment("fastmcp", environments)),
        "mcp-proxy": lambda: mcp_proxy(environment("mcp-proxy", environments)),
    }
    return [make() for name, make in makers.items() if name in names]


def environment(package: str, environments: Mapping[str, Path]) -> Path:
    """An environment with the package: the given one, or one of our own."""
    venv = environments.get(package) or ROOT / ".tools" / f"{package}-{PEERS[package]}"
    script = venv / "bin" / package
    if not script.exists():
        if package in environments:
            sys.exit(f"no {package} in {venv}")
        requirement = f"{package}=={PEERS[package]}"
        print(f"installing {requirement} into {venv.relative_to(ROOT)}", file=sys.stderr)
        if uv := _working_uv():
            run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(venv)])
            run(
                [uv, "pip", "install", "--quiet", "--python", str(venv / "bin/python"), requirement]
            )
        else:
            run([sys.executable, "-m", "venv", str(venv)])
            run([str(venv / "bin/python"), "-m", "pip", "install", "--quiet", requirement])
    return venv


def _working_uv() -> str | None:
    for uv in (str(ROOT / ".tools/uv/bin/uv"), shutil.which("uv") or ""):
        if uv and Path(uv).exists():
            tried = subprocess.run([uv, "--version"], capture_output=True, check=False)
            if tried.returncode == 0:
                return uv
    return None
