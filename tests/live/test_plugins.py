"""Each agent installs upwell's plugin in its own way, on a machine that has only the agent and uv.

The plugin comes from this repository's files, and uv builds upwell from them. Only the model is
scripted; the tests check what it received."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.doors.hooked import House
from tests.live import test_claude, test_codex, test_copilot
from tests.live.conftest import RULE, RUN_SECONDS, fenced
from tests.live.install import command
from tests.live.model import Heard, Model, Script
from tests.live.talk import Call
from upwell.hook.place import DaemonPlace

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[2]
NOTED = "The lighthouse lens rotation is serviced every Tuesday at 06:40"
ASKED = "Service the lens rotation of the lighthouse: when?"
Playing = Callable[[Script], Model]


@dataclass(frozen=True)
class Way:
    """How one agent installs and removes the plugin, and runs without a terminal. `note` is its
    name for the tool that adds a memory."""

    agent: str
    installing: Sequence[Sequence[str]]
    removing: Sequence[str]
    asking: Sequence[str]
    note: str
    environment: Callable[[str], Mapping[str, str]]
    settings: str = ""

    def __str__(self) -> str:
        return self.agent


def _of_claude(url: str) -> Mapping[str, str]:
    return {**test_claude.QUIET, "ANTHROPIC_BASE_URL": url}


def _of_copilot(url: str) -> Mapping[str, str]:
    return {**test_copilot.QUIET, "COPILOT_PROVIDER_BASE_URL": f"{url}/v1"}


WAYS = (
    Way(
        "claude",
        [["plugin", "install", "upwell", "--marketplace", str(ROOT)]],
        ["plugin", "uninstall", "upwell@upwell"],
        ["--allowedTools", "mcp__plugin_upwell_upwell__*", "--model", "sonnet", "-p"],
        "mcp__plugin_upwell_upwell__add_memory",
        _of_claude,
    ),
    Way(
        "copilot",
        [["plugin", "marketplace", "add", str(ROOT)], ["plugin", "install", "upwell@upwell"]],
        ["plugin", "uninstall", "upwell@upwell"],
        ["--allow-all-tools", "--allow-all-paths", "-p"],
        "upwell-add_memory",
        _of_copilot,
    ),
    Way(
        "codex",
        [["plugin", "marketplace", "add", str(ROOT)], ["plugin", "add", "upwell@upwell"]],
        ["plugin", "remove", "upwell@upwell"],
        ["exec", "-c", "sandbox_mode=danger-full-access", test_codex.TRUSTED],
        "mcp__upwell/add_memory",
        lambda url: {},
        test_codex.CONFIG,
    ),
)


class Machine:
    """A user's empty home, in which upwell has a rule, but is not installed."""

    def __init__(self, folder: Path, way: Way, model: Model) -> None:
        self.way, self.model = way, model
        self.house = house = House(folder)
        self.user = Path(house.environment["HOME"])
        house.home = self.user / ".local" / "share" / "upwell"
        house.place = DaemonPlace(str(house.home))
        del house.environment["UPWELL_HOME"]
        uv = shutil.which("uv") or str(ROOT / ".tools" / "uv" / "bin" / "uv")
        python = Path(sys.executable).resolve()
        places = [Path(uv).parent, python.parent, Path("/usr/bin"), Path("/bin")]
        house.environment["PATH"] = ":".join(map(str, places))
        cache = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv")
        settings = self.user / ".config" / "uv" / "uv.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(f"cache-dir = {json.dumps(cache)}\nsystem-certs = true\n")
        subprocess.run(["git", "init", "-q", house.project], check=True)
        house.upwell("remember", "--pin", RULE)
        assert not house.home.joinpath("upwell-hook").exists()
        if way.settings:
            file = self.user / ".codex" / "config.toml"
            file.parent.mkdir()
            file.write_text(way.settings.format(url=model.url))

    def run(self, *words: str) -> str:
        env = {
            **self.house.environment,
            **fenced(self.model),
            **self.way.environment(self.model.url),
        }
        for name in ("NO_PROXY", "no_proxy"):
            env[name] += ",pypi.org,files.pythonhosted.org"
        done = subprocess.run(
            [*command(self.way.agent), *words],
            env=env,
            cwd=self.house.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
        )
        assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
        return done.stdout

    def install(self) -> None:
        for words in self.way.installing:
            print(f"$ {self.way.agent} {' '.join(words)}\n{self.run(*words)}")

    def ask(self, prompt: str) -> list[Heard]:
        """Run the agent once. Returns its requests to the model."""
        before = len(self.model.heard)
        print(f"$ {self.way.agent} … {prompt!r}\n{self.run(*self.way.asking, prompt)}")
        return self.model.heard[before:]


@pytest.fixture(params=WAYS, ids=str)
def machine(request: pytest.FixtureRequest, tmp_path: Path, playing: Playing) -> Iterator[Machine]:
    way: Way = request.param
    note = Call(way.note, {"content": NOTED})
    calls = [Call("ToolSearch", {"query": f"select:{way.note}"}), note]
    machine = Machine(
        tmp_path, way, playing({"Note when": calls if way.agent == "claude" else [note]})
    )
    yield machine
    machine.house.stop()


def test_one_line_installs_upwell_and_the_next_prompt_has_a_memory(machine: Machine) -> None:
    machine.install()
    # Copilot CLI runs the hooks of a start and of a prompt at once, and both may say a rule.
    assert RULE in machine.ask("What is the colour of the day?")[0].text
    assert noted(machine)
    assert told(machine.ask(ASKED)) == [(1, 1)]
    print(f"$ {machine.way.agent} {' '.join(machine.way.removing)}")
    print(machine.run(*machine.way.removing))
    (heard,) = machine.ask(ASKED)
    assert told([heard]) == [(0, 0)]
    assert not [tool for tool in heard.tools if "upwell" in tool]


def noted(machine: Machine) -> bool:
    """Have the agent note when the lens is serviced. Codex may begin before it has the tools."""
    return any(
        "unsupported call" not in machine.ask("Note when the lens is serviced")[-1].of("result")[-1]
        for _ in range(5)
    )


def test_setup_and_a_plugin_answer_once_whichever_came_first(machine: Machine) -> None:
    machine.install()
    machine.ask("Begin")
    house, agent = machine.house, machine.way.agent
    house.upwell("setup", "--yes", "--only", "hooks,servers")
    (row,) = (row for row in hosts(house) if row["host"] == agent)
    assert not row["installed"]
    assert told(machine.ask(ASKED)) == [(1, 0)]
    house.upwell("hook", "install", agent, "--apply")
    assert told(machine.ask(ASKED)) == [(1, 0)]
    decisions = json.loads(house.upwell("explain", "--json"))["decisions"]
    asked = [decision["session"] for decision in decisions if decision["door"] == "prompt"]
    assert len(asked) == len(set(asked))
    machine.run(*machine.way.removing)
    assert told(machine.ask(ASKED)) == [(1, 0)]
    house.upwell("setup", "--undo", "--yes")
    house.upwell("hook", "uninstall", agent, "--apply")
    assert told(machine.ask(ASKED)) == [(0, 0)]


def hosts(house: House) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(house.upwell("hook", "hosts", "--json"))["hosts"]
    return rows


def told(heard: Sequence[Heard]) -> list[tuple[int, int]]:
    """How often the model received the rule and the noted memory, for each request."""
    return [(entry.text.count(RULE), entry.text.count(NOTED)) for entry in heard]
