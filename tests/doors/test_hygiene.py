"""Every door through which a memory comes in: a secret is masked, the user is told its format, no
byte of it is in the home, and no block for a model has it.

Samples are put together from halves, so that scanners of this repository stay quiet.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.doors.agent import Agent
from tests.doors.hook_events import claude_like
from tests.doors.hooked import House

TOKENS = {
    "github-pat": "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "aws-access-token": "AKIA" + "IOSFODNN7EXAMPLF",
    "stripe-access-token": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
}
KEY_LINE = "MIIEowIBAAKCAQEA0Zq7"
PEM = f"-----BEGIN RSA {'PRIVATE'} KEY-----\n{KEY_LINE}\n-----END RSA {'PRIVATE'} KEY-----"
SENTENCE = f"Always deploy the harbour with {', '.join(TOKENS.values())} as keys."
TEXT = f"{SENTENCE}\n{PEM}"
EVERY = {**TOKENS, "private-key": KEY_LINE}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path / "house")
    yield house
    house.stop()


def told(house: House, *args: str, text: str = "") -> str:
    """The remarks of a command on stderr."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "upwell", *args],
        input=text.encode(),
        env=house.environment,
        cwd=house.project,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stderr.decode()


def remember(house: House) -> str:
    return told(house, "remember", "-", text=TEXT)


def pin(house: House) -> str:
    return told(house, "rules", "add", "-", text=TEXT)


def note(house: House) -> str:
    return told(house, "stm", "add", "-", text=TEXT)


def import_memories(house: House) -> str:
    path = house.project.parent / "memories.jsonl"
    path.write_text(json.dumps({"text": TEXT}))
    remarks = told(house, "import", str(path))
    path.unlink()
    return remarks


def add_memory(house: House) -> str:
    serve = [sys.executable, "-P", "-m", "upwell", "serve"]
    with Agent(serve, env=house.environment, cwd=house.project) as agent:
        agent.hello()
        agent.wait_for_tools("upwell__add_memory")
        return json.dumps(agent.call("upwell__add_memory", content=TEXT))


def learn_sessions(house: House) -> str:
    path = house.project.parent / "old.jsonl"
    entry = {"type": "user", "sessionId": "s", "cwd": str(house.project)}
    path.write_text(json.dumps(entry | {"message": {"role": "user", "content": TEXT}}) + "\n")
    remarks = told(house, "learn", "sessions", str(path))
    path.unlink()
    return remarks


def learn_git(house: House) -> str:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.example"]
    subprocess.run(["rm", "-rf", ".git"], cwd=house.project, check=True)
    subprocess.run([*git, "init", "-q"], cwd=house.project, check=True)
    message = f"Deploy with keys\n\n{SENTENCE} It must, because {PEM}"
    subprocess.run(
        [*git, "commit", "--allow-empty", "-q", "-m", message], cwd=house.project, check=True
    )
    return told(house, "learn", "git")


DOORS: dict[Callable[[House], str], frozenset[str]] = {
    remember: frozenset(EVERY),
    pin: frozenset(EVERY),
    note: frozenset(EVERY),
    import_memories: frozenset(EVERY),
    add_memory: frozenset(EVERY),
    # A rule is one sentence, and the private key comes after it.
    learn_sessions: frozenset(TOKENS),
    learn_git: frozenset(EVERY),
}


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_no_secret_comes_in(house: House, door: Callable[[House], str]) -> None:
    remarks = door(house)
    assert [rule for rule in DOORS[door] if rule not in remarks] == []
    assert secrets_in(remarks) == []
    assert secrets_in_home(house) == []
    if door in (learn_sessions, learn_git):
        (proposal,) = json.loads(house.upwell("inbox", "--json"))["proposals"]
        assert "[REDACTED:" in proposal["text"]
        house.upwell("inbox", "accept", "--all")
    house.start()
    blocks = [
        house.hook("claude", event=claude_like("s", str(house.project), name, **fields)).json
        for name, fields in (
            ("SessionStart", {"source": "startup"}),
            ("UserPromptSubmit", {"prompt": "How do we deploy the harbour, and with which keys?"}),
        )
    ]
    assert secrets_in(json.dumps(blocks)) == []
    assert "deploy the harbour" in json.dumps(blocks) + house.upwell("context", "deploy harbour?")
    house.stop()
    assert secrets_in_home(house) == []


def secrets_in(text: str) -> list[str]:
    return [rule for rule, secret in EVERY.items() if secret in text]


def secrets_in_home(house: House) -> list[str]:
    content = b"".join(path.read_bytes() for path in house.home.rglob("*") if path.is_file())
    return [rule for rule, secret in EVERY.items() if secret.encode() in content]
