"""Every `upwell` command that the docs show is run, page by page, in the order of the page."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.postgres import cluster

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    if re.search(r"^```(sh)?\n[^`]*^(\$ )?upwell ", path.read_text(encoding="utf-8"), re.MULTILINE)
)

FAILS = {
    "upwell login": "the server of the example does not exist",
    "upwell hook install claude --http": "the port of the example is set by hand",
    "upwell feedback s_97b89fa703db": "the surfacing of the example does not exist",
    "upwell team join": "nobody is there to paste the token of the example",
    "upwell recall --sessions session:": "the session of the example does not exist",
    "upwell learn sessions --lessons": "no model writes lessons by default",
    "upwell setup --lessons": "no model can write lessons in the test",
    "upwell lessons from l_": "the lesson of the example does not exist",
}
"""Commands that must fail with one line, because the example names a thing that is not here."""
DATABASE = "postgresql://upwell@db.example.org/upwell"
"""The database of the examples. The test puts a real one in its place."""
STAYS = ("upwell serve --http", "upwell dashboard", "upwell explain --follow")
"""Commands that print their address or first line, and then run until they are interrupted."""


def commands(page: str) -> Iterator[str]:
    """The command lines of a page that call upwell, without comments and prompts."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if language not in ("", "sh"):
            continue
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            line = re.sub(r"\s+# .*", "", line.removeprefix("$ "))
            if re.match(r"(SECRET=… )?upwell [a-z]|echo .*(\| upwell|>>) ", line):
                yield from (
                    part for part in line.split(" && ") if part.startswith(("upwell", "echo"))
                )


@pytest.fixture
def shell(environment: Mapping[str, str], tmp_path: Path) -> dict[str, str]:
    """The environment of a user with a project, a past session, notes, and JSON lines."""
    user = Path(environment["HOME"])
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "upwell").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m upwell "$@"\n')
    (programs / "upwell").chmod(0o755)
    shop = user / "code" / "shop"
    (shop / "src").mkdir(parents=True)
    (shop / "memory").mkdir()
    (shop / "src" / "payments.py").write_text("def charge():\n    return 'key'\n")
    (shop / "memory" / "db.md").write_text("# Tenants\n\nWe use row level security, not filters.\n")
    (shop / "MEMORY.md").write_text("# Shop\n\n- Payments are keyed by charge.\n")
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org"]
    reason = "Reuse the key of a charge\n\nA retry sent a new key, so order 7 was charged twice."
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", reason]):
        subprocess.run([*git, *words], cwd=shop, check=True)
    (shop / "memories.jsonl").write_text('{"text": "Prices are integers", "project": "shop"}\n')
    transcripts = user / "transcripts"
    transcripts.mkdir()
    projects = user / ".claude" / "projects" / "shop"
    projects.mkdir(parents=True)
    for folder in (transcripts, projects):
        (folder / "one.jsonl").write_text("".join(past_session(shop)))
    in_default_home = {name: environment[name] for name in environment if name != "UPWELL_HOME"}
    (user / ".local" / "share" / "upwell").mkdir(parents=True, mode=0o700)
    return {**in_default_home, "PATH": f"{programs}:{environment['PATH']}", "PWD": str(shop)}


def past_session(shop: Path) -> Iterator[str]:
    """Claude Code's transcript of a question and its answer."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() - 86400))
    entry = {"sessionId": "97259dc5", "cwd": str(shop), "timestamp": now, "version": "2.1.330"}
    question = {"role": "user", "content": "How did we fix the retries of payments?"}
    answer = {"role": "assistant", "content": [{"type": "text", "text": "By reusing the key."}]}
    yield json.dumps({**entry, "type": "user", "uuid": "a", "message": question}) + "\n"
    yield json.dumps({**entry, "type": "assistant", "uuid": "b", "message": answer}) + "\n"


def stays(line: str, shell: Mapping[str, str], cwd: Path) -> None:
    """Start a command that runs until it is interrupted; it must print something and then end."""
    line = re.sub(r"127\.0\.0\.1:8765", "127.0.0.1:0", line) + (
        " --no-open" if "dashboard" in line else ""
    )
    with subprocess.Popen(
        ["bash", "-c", f"exec {line}"],
        env=shell,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline().strip(), line
        running.send_signal(signal.SIGINT)
        assert running.wait(60) in (0, 130, -signal.SIGINT), line


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_page_works(page: str, shell: dict[str, str]) -> None:
    cwd = Path(shell["PWD"])
    ids = {"HOST": "claude", "SESSION": "s1"}
    lines = "\n".join(commands(page))
    if DATABASE in lines:
        lines = lines.replace(DATABASE, cluster().database())
    for line in lines.splitlines():
        for placeholder in ("ID", "SURFACING"):
            if re.search(rf"\b{placeholder}\b", line) and placeholder not in ids:
                ids[placeholder] = made(placeholder, shell, cwd)
        line = re.sub(r"\b(HOST|SESSION|ID|SURFACING)\b", lambda found: ids[found[0]], line)
        if line.startswith(STAYS):
            stays(line, shell, cwd)
            continue
        done = run(unattended(line), shell, cwd)
        expected = any(line.startswith(start) or f" {start}" in line for start in FAILS)
        assert (done.returncode != 0) == expected, f"{line}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, line
    assert shutil.which("upwell", path=shell["PATH"])


def unattended(line: str) -> str:
    """Change a command that would ask questions on a terminal, so that it asks none."""
    if line.startswith("upwell setup") and "--dry-run" not in line:
        return f"{line} --yes"
    return line.replace(" --sample 30 --label", "")


def run(line: str, shell: Mapping[str, str], cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", line],
        env=shell,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def made(placeholder: str, shell: Mapping[str, str], cwd: Path) -> str:
    """Create what a placeholder on a page stands for, and return its id."""
    note = "Every retry of a charge reuses the idempotency key of the charge"
    identity = run(f"upwell remember '{note}' --path src/payments.py", shell, cwd).stdout.strip()
    if placeholder == "ID":
        return identity
    question = "why do retries of a charge reuse the idempotency key of the charge?"
    shown = run(f"upwell context '{question}' --session s1 --format json", shell, cwd)
    return str(json.loads(shown.stdout)["surfacing_id"])


def test_pages_with_commands_are_found() -> None:
    assert {"README.md", "docs/quickstart.md", "docs/faq.md", "docs/servers.md"} <= set(PAGES)
    assert sum(len(list(commands(page))) for page in PAGES) > 80


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_the_first_examples_work_in_any_repository(page: str, shell: dict[str, str]) -> None:
    cwd = Path(shell["HOME"]) / "elsewhere"
    subprocess.run(["git", "init", "-q", str(cwd)], check=True)
    remembered = [line for line in commands(page) if line.startswith("upwell remember")]
    assert remembered
    for line in remembered:
        assert run(line, shell, cwd).returncode == 0, line
    assert "gone" not in run("upwell inbox review", shell, cwd).stdout
