"""Gemini CLI and OpenCode install upwell's extension and package on a machine that has only the
agent and uv. The bundle for Claude Desktop passes the official tool, and its command serves the
tools, as the commands in the links do."""

import json
import os
import shutil
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from dev.bundles import desktop_bundle, links, opencode_package

from tests.live import test_gemini, test_opencode
from tests.live.conftest import RULE
from tests.live.install import command
from tests.live.talk import Call
from tests.live.test_plugins import ASKED, NOTED, ROOT, Machine, Playing, Way
from upwell import __version__
from upwell.hosts.installation import Installation
from upwell.hosts.plugins import plugin_of
from upwell.tools.options import FEW

pytestmark = pytest.mark.live
REACHABLE = "127.0.0.1,localhost,registry.npmjs.org"
"""OpenCode asks npm for packages of its own before it loads plugins."""


class Settings:
    """The agent's settings in the home of a machine, with the scripted model."""

    def __init__(self, machine: Machine, name: str, text: str) -> None:
        self.file = machine.user / name
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(text)
        self.before = text


def served(repository: Path) -> ThreadingHTTPServer:
    """A Git server on loopback."""

    class Backend(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            about = {
                "GIT_PROJECT_ROOT": str(repository),
                "GIT_HTTP_EXPORT_ALL": "1",
                "REQUEST_METHOD": self.command,
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            backend = ["git", "http-backend"]
            done = subprocess.run(backend, env=os.environ | about, input=body, capture_output=True)
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            self.wfile.write(b"HTTP/1.0 200 OK\r\n" + head + b"\r\n\r\n" + content)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Backend)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [uv(), "build", "-q", "--wheel", "--python", sys.executable, "--out-dir", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    clone = tmp_path_factory.mktemp("clone") / "upwell"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    return clone


@pytest.fixture
def url(repository: Path) -> Iterator[str]:
    server = served(repository)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/.git"
    server.shutdown()
    server.server_close()
    thread.join(10)


def uv() -> str:
    return shutil.which("uv") or str(ROOT / ".tools" / "uv" / "bin" / "uv")


def gemini(source: str) -> Way:
    return Way(
        "gemini",
        [["extensions", "install", "--consent", source]],
        ["extensions", "uninstall", "upwell"],
        ["-y", "-p"],
        "mcp_upwell_add_memory",
        lambda url: {**test_gemini.QUIET, "GOOGLE_GEMINI_BASE_URL": url},
    )


def opencode(source: str) -> Way:
    return Way(
        "opencode",
        [["plugin", source, "-g"]],
        [],
        ["run"],
        "upwell_add_memory",
        lambda url: {**test_opencode.QUIET, **dict.fromkeys(("NO_PROXY", "no_proxy"), REACHABLE)},
    )


def told(machine: Machine, prompt: str) -> list[tuple[int, int]]:
    """How often each request to the model contained the rule and the memory."""
    requests = [heard for heard in machine.ask(prompt) if heard.tools]
    return [(entry.text.count(RULE), entry.text.count(NOTED)) for entry in requests]


def version(machine: Machine) -> str | None:
    own = Installation(user_folder=machine.user, environment={}, command=())
    plugin = plugin_of(machine.way.agent, own)
    return plugin.version if plugin else None


def helped(machine: Machine) -> None:
    """The first prompt finds upwell installed and the rule; the second, a memory of the first."""
    assert version(machine) is None
    machine.install()
    assert version(machine) == __version__
    first = told(machine, "Note when the lens is serviced")
    assert {rules for rules, _ in first} == {1}
    assert told(machine, ASKED) == [(1, 1)]
    last = [heard for heard in machine.model.heard if heard.tools][-1]
    assert "reading-on" in json.dumps(last.body), "the skills"
    assert {tool for tool in last.tools if "upwell" in tool} == {
        machine.way.note.replace("add_memory", tool) for tool in FEW
    }


@pytest.mark.parametrize("kind", ["folder", "url"])
def test_gemini_installs_the_extension(
    tmp_path: Path, playing: Playing, repository: Path, url: str, kind: str
) -> None:
    way = gemini(str(repository) if kind == "folder" else url)
    machine = Machine(tmp_path, way, playing({"Note when": [Call(way.note, {"content": NOTED})]}))
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "model": {"name": "gemini-2.5-pro"},
    }
    kept = Settings(machine, ".gemini/settings.json", json.dumps(settings))
    try:
        helped(machine)
        machine.house.upwell("hook", "install", "gemini", "--apply")
        assert told(machine, ASKED) == [(1, 1)], "both hooks, one answer"
        machine.house.upwell("hook", "uninstall", "gemini", "--apply")
        machine.run(*way.removing)
        assert told(machine, ASKED) == [(0, 0)]
        assert kept.file.read_text() == kept.before
        assert not list((machine.user / ".gemini" / "extensions").glob("upwell*"))
    finally:
        machine.house.stop()


@pytest.mark.parametrize("kind", ["folder", "package"])
def test_opencode_installs_the_package(
    tmp_path: Path, playing: Playing, wheel: Path, kind: str
) -> None:
    source = str(ROOT / "plugins" / "opencode")
    if kind == "package":
        source = f"opencode-upwell@file:{opencode_package(wheel, tmp_path)}"
    way = opencode(source)
    model = playing({"Note when": [Call(way.note, {"content": NOTED})]})
    machine = Machine(tmp_path, way, model)
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{model.url}/v1", "apiKey": "nobody"},
        "models": {"played": {"tool_call": True, "limit": {"context": 200_000, "output": 8_000}}},
    }
    settings = {
        "model": "played/played",
        "small_model": "played/played",
        "permission": {"*": "allow"},
        "provider": {"played": provider},
    }
    kept = Settings(machine, ".config/opencode/opencode.json", json.dumps(settings, indent=2))
    try:
        helped(machine)
        machine.house.upwell("hook", "install", "opencode", "--apply")
        assert told(machine, ASKED) == [(1, 1)], "the package and the file, one answer"
        machine.house.upwell("hook", "uninstall", "opencode", "--apply")
        kept.file.write_text(kept.before)
        assert told(machine, ASKED) == [(0, 0)]
    finally:
        machine.house.stop()


def test_claude_desktop_can_install_the_bundle(tmp_path: Path, wheel: Path) -> None:
    bundle, folder = desktop_bundle(wheel, tmp_path), tmp_path / "unpacked"
    for words in (["unpack", bundle, folder], ["validate", folder], ["pack", folder, bundle]):
        done = subprocess.run([*command("mcpb"), *map(str, words)], capture_output=True, text=True)
        print(done.stdout)
        assert done.returncode == 0, done.stdout + done.stderr
    server = json.loads((folder / "manifest.json").read_text())["server"]["mcp_config"]
    args = [word.replace("${__dirname}", str(folder)) for word in server["args"]]
    assert tools([server["command"], *args], tmp_path) == set(FEW)


@pytest.mark.parametrize("application", ["Cursor", "VS Code"])
def test_a_link_adds_the_server(tmp_path: Path, wheel: Path, application: str) -> None:
    query = urlsplit(links(str(wheel))[application]).query
    config = unquote(query)
    if application == "Cursor":
        config = b64decode(parse_qs(query)["config"][0]).decode()
    server = json.loads(config)
    assert tools([server["command"], *server["args"]], tmp_path) == set(FEW)


def tools(words: Sequence[str], folder: Path) -> set[str]:
    """The tools of an MCP server that is started on a machine with nothing but uv."""
    import_path = f"{Path(uv()).parent}:{Path(sys.executable).resolve().parent}:/usr/bin:/bin"
    env: Mapping[str, str] = {
        **{name: value for name, value in os.environ.items() if name.startswith(("SSL_", "UV_"))},
        "PATH": import_path,
        "HOME": str(folder),
        "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv"),
    }
    about = {"protocolVersion": "2025-06-18", "capabilities": {}}
    asked = [
        {"id": 1, "method": "initialize", "params": {**about, "clientInfo": {"name": "t"}}},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in asked)
    done = subprocess.run(words, input=lines, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout.splitlines()[-1])["result"]["tools"]
    return {tool["name"] for tool in listed}
