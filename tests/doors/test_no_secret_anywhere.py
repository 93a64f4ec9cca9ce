"""Secrets of every known format, in every kind of surrounding text, come in through every door.
Afterwards none is in a file of the home, a log, a trace, an export, an explanation, or on the
dashboard.

Each door gets secrets of its own, so that a leak names its door, surrounding and format. Nothing
here is or was valid.
"""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.doors.agent import Agent
from tests.doors.conftest import script, write_config
from tests.doors.hook_events import claude_like
from tests.doors.hooked import House
from tests.doors.test_dashboard import asked
from tests.unit.ground.secrets.formats import SURROUNDINGS, part_of, secrets

pytestmark = pytest.mark.slow

NEEDLE_CHARS = 14
RUN = re.compile(rb"[A-Za-z0-9+/_-]{14,}")
FILLER = "\n".join(f"line {number} is long, ordinary and of no interest" for number in range(400))
SERVE = [sys.executable, "-P", "-m", "upwell", "serve"]
GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@b.example"]


class Sown:
    """The secrets that were given to doors. `texts(door)` returns one text for each surrounding,
    with a paragraph for each format; `leaks` names those that are found again."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}
        self._seed = 1000

    def texts(self, door: str) -> list[str]:
        return ["\n\n".join(paragraphs) for paragraphs in self.paragraphs(door)]

    def paragraphs(self, door: str) -> list[list[str]]:
        """The paragraphs of each surrounding."""
        found = []
        for name, around in SURROUNDINGS.items():
            self._seed += 1
            sown = secrets(self._seed)
            for form, secret in sown.items():
                needle = part_of(secret)[:NEEDLE_CHARS].encode()
                self._known[needle] = f"{door}: {form} in {name}"
            found.append([f"Case {form}: {around(secret)}" for form, secret in sown.items()])
        return found

    def leaks(self, content: bytes) -> set[str]:
        found = set()
        for run in set(RUN.findall(content)):
            for start in range(len(run) - NEEDLE_CHARS + 1):
                if door := self._known.get(run[start : start + NEEDLE_CHARS]):
                    found.add(door)
        return found

    def __len__(self) -> int:
        return len(self._known)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path / "house")
    write_config(
        house.home,
        {"quoting": script("quoting")},
        cache={"tools": ["quoting__*"]},
        hook={"capture": True, "compress": ["claude"]},
        surface={"moments": "all"},
    )
    yield house
    house.stop()


def run(house: House, *args: str, text: str = "") -> bytes:
    """What a command says; it may refuse."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "upwell", *args],
        input=text.encode("utf-8", "surrogatepass"),
        env=house.environment,
        cwd=house.project,
        capture_output=True,
        timeout=600,
    )
    assert b"Traceback" not in done.stderr
    assert b"internal error" not in done.stderr
    return done.stdout + done.stderr


def by_commands(house: House, sown: Sown) -> bytes:
    """Memories, rules, notes, imports and questions on the command line."""
    shown = b""
    for verb in (["remember", "-"], ["rules", "add", "-"], ["stm", "add", "-"]):
        for text in sown.texts(" ".join(verb)):
            shown += run(house, *verb, text=text)
    lines = [json.dumps({"text": text}) for text in sown.texts("import jsonl")]
    lines += [
        json.dumps({"text": f"fact {n}", "source": text[:3000], "tags": [text[:150]]})
        for n, text in enumerate(sown.texts("import source"))
    ]
    memories = house.project.parent / "memories.jsonl"
    memories.write_text("\n".join(lines))
    shown += run(house, "import", str(memories))
    notes = house.project.parent / "notes"
    notes.mkdir()
    for number, text in enumerate(sown.texts("import markdown")):
        (notes / f"{number}.md").write_text(f"# Deploying\n\n{text}\n")
    shown += run(house, "import", str(notes))
    for verb in ("recall", "context"):
        for text in sown.texts(verb):
            shown += run(house, verb, "how do we deploy? " + text[:40_000])
    for text in sown.texts("compress"):
        # What it prints is the user's own text.
        run(house, "compress", "--max-tokens", "200", text=text + FILLER * 3)
    return shown


def by_gateway(house: House, sown: Sown) -> bytes:
    """Tool calls, their results, errors and logs, and our own tools. The results go to the agent
    that asked for them, so only our own tools' answers are looked at."""
    reply, shown = house.project.parent / "reply.txt", b""
    with Agent(SERVE, env=house.environment, cwd=house.project) as agent:
        agent.hello()
        agent.wait_for_tools("upwell__add_memory", "quoting__say")
        for tool in ("say", "structured", "fail", "log", "stderr"):
            for text in sown.texts(f"result of {tool}"):
                reply.write_text(f"{text}\n{FILLER * 2}" if tool in ("say", "structured") else text)
                agent.ask("tools/call", called(f"quoting__{tool}", file=str(reply)))
        for text in sown.texts("arguments"):
            agent.ask(
                "tools/call",
                called("quoting__echo", query=text[:9000], path=text[-3000:], _context_query=text),
            )
        for paragraphs in sown.paragraphs("short results"):
            for paragraph in paragraphs[::4]:
                agent.ask("tools/call", called("quoting__echo", query=paragraph))
        for tool, argument in (
            ("add_memory", "content"),
            ("memory_context", "message"),
            ("memory_search", "query"),
            ("search_memory", "query"),
        ):
            for text in sown.texts(tool):
                answer = agent.ask("tools/call", called(f"upwell__{tool}", **{argument: text}))
                shown += b"" if tool.endswith("search") else json.dumps(answer).encode()
        report = {"server": "quoting", "tool": "say", "kind": "other"}
        for text in sown.texts("compression_feedback"):
            missing = called("upwell__compression_feedback", missing=text[:5000], **report)
            shown += json.dumps(agent.ask("tools/call", missing)).encode()
        [text, *_] = sown.texts("last words")
        reply.write_text(text)
        agent.ask("tools/call", called("quoting__die", file=str(reply)))
        time.sleep(1)
    return shown


def called(name: str, /, **arguments: str) -> dict[str, object]:
    return {"name": name, "arguments": arguments}


def by_hooks(house: House, sown: Sown) -> bytes:
    """Prompts, tools and their outputs, and the transcript of a session that ends."""
    cwd, shown = str(house.project), b""
    house.start()

    def event(name: str, **fields: object) -> bytes:
        return house.hook("claude", event=claude_like("s", cwd, name, **fields)).out

    for text in sown.texts("prompt"):
        shown += event("UserPromptSubmit", prompt=f"How do we deploy the harbour? {text}")
    for paragraphs in sown.paragraphs("short prompt"):
        for paragraph in paragraphs[::6]:
            shown += event("UserPromptSubmit", prompt=f"Why does {paragraph} fail at deploying?")
    for text in sown.texts("command"):
        command = {"command": f"deploy --with {text[:4000]}"}
        failed = {"stdout": "", "stderr": "no such option", "interrupted": False}
        shown += event("PostToolUse", tool_name="Bash", tool_input=command, tool_response=failed)
    for text in sown.texts("output"):
        output = {"stdout": f"{text}\n{FILLER * 2}", "stderr": text[:500], "interrupted": False}
        event("PostToolUse", tool_name="Bash", tool_input={"command": "env"}, tool_response=output)
    transcript = house.project / ".t" / "s.jsonl"
    transcript.parent.mkdir()
    transcript.write_text(session(house, sown, "transcript"))
    shown += event("Stop")
    time.sleep(5)
    house.stop()
    return shown


def session(house: House, sown: Sown, door: str) -> str:
    """A transcript in which every paragraph is a rule of the user, and some are commands."""
    base = {"sessionId": "s", "cwd": str(house.project), "timestamp": "2026-05-01T10:00:00Z"}
    entries = []
    for paragraphs in sown.paragraphs(door):
        for number, paragraph in enumerate(paragraphs):
            wish = f"Always deploy the harbour with {paragraph} since it fails otherwise."
            entries.append({"type": "user", "message": {"role": "user", "content": wish}})
            if number % 5 == 0:
                entries += command(f"deploy --with {paragraph}", f"error: {paragraph} is wrong")
    return "\n".join(json.dumps(base | entry) for entry in entries) + "\n"


def command(line: str, output: str) -> list[dict[str, object]]:
    use = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": line}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": output, "is_error": True}
    return [
        {"type": "assistant", "message": {"role": "assistant", "content": [use]}},
        {"type": "user", "message": {"role": "user", "content": [result]}},
    ]


def by_learning(house: House, sown: Sown) -> bytes:
    """Past sessions, their index, and the history of the repository."""
    folder = Path(house.environment["HOME"]) / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    (folder / "old.jsonl").write_text(session(house, sown, "learn sessions"))
    shown = run(house, "learn", "sessions")
    shown += run(house, "recall", "--sessions", "How do we deploy the harbour?")
    shown += run(house, "recall", "--sessions", "deploy --with Case github", "--json")
    subprocess.run(["rm", "-rf", ".git"], cwd=house.project, check=True)
    subprocess.run([*GIT, "init", "-q"], cwd=house.project, check=True)
    for text in sown.texts("learn git"):
        message = f"Deploy with other keys\n\nIt must, because the old ones fail.\n\n{text}"
        commit = [*GIT, "commit", "--allow-empty", "-q", "-F", "-"]
        subprocess.run(commit, cwd=house.project, input=message.encode(), check=True)
    shown += run(house, "learn", "git")
    shown += run(house, "inbox", "--json")
    return shown + run(house, "inbox", "accept", "--all")


REPORTS = (
    *(["explain", "-n", "500"], ["explain", "--json", "-n", "500"], ["stats", "--json"]),
    *(["export"], ["export", "--format", "markdown"], ["inbox", "--json"], ["tune", "--json"]),
    *(["topics", "--json"], ["rules"], ["stm", "search", "deploy"], ["doctor"], ["backup"]),
    *(["recall", "how do we deploy", "-k", "50", "--json"], ["config", "show", "--json"]),
    *(["context", "how do we deploy the harbour?"], ["context", "--door", "session"]),
)
DOORS: Mapping[str, Callable[[House, Sown], bytes]] = {
    "commands": by_commands,
    "gateway": by_gateway,
    "hooks": by_hooks,
    "learning": by_learning,
}


@pytest.mark.parametrize("door", DOORS)
def test_no_secret_is_found_again(house: House, door: str) -> None:
    sown = Sown()
    with receiving_traces() as (address, received):
        house.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = address
        shown = DOORS[door](house, sown)
        leaks = {"an answer": sown.leaks(shown)}
        for report in REPORTS:
            leaks[" ".join(report)] = sown.leaks(run(house, *report))
        leaks["the dashboard"] = sown.leaks(dashboard(house))
    leaks["a trace"] = sown.leaks(b"\n".join(received))
    places = [house.home, Path(f"/tmp/upwell-{house.home.stat().st_uid}")]
    for path in (path for place in places for path in place.rglob("*") if path.is_file()):
        leaks[path.name] = sown.leaks(path.read_bytes())
    assert len(sown) > 1000
    assert {place: sorted(found) for place, found in leaks.items() if found} == {}


def test_the_search_finds_a_secret(tmp_path: Path) -> None:
    sown = Sown()
    [text, *_] = sown.texts("door")
    assert len(sown.leaks(text.encode())) > 80


def dashboard(house: House) -> bytes:
    """All data of the dashboard."""
    running = subprocess.Popen(
        [sys.executable, "-P", "-m", "upwell", "dashboard", "--no-open"],
        env=house.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout
    try:
        address = urlsplit(running.stdout.readline().strip())
        port, token = address.port or 0, address.fragment.removeprefix("token=")
        pages = ("stats", "decisions", "memories", "memories?query=how+do+we+deploy")
        return b"\n".join(
            json.dumps(asked(port, token, f"/dashboard/{page}")[1]).encode() for page in pages
        )
    finally:
        running.terminate()
        running.communicate(timeout=20)


@contextmanager
def receiving_traces() -> Iterator[tuple[str, list[bytes]]]:
    """The address of a receiver of OTLP, and the bodies that it has received."""
    received: list[bytes] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        server.server_close()
