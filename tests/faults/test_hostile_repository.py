"""A repository that somebody else made. Its instruction files, settings and modules take little
memory and time and make no call fail, and none of its code runs.
"""

import asyncio
import json
import os
import threading
import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.conftest import Upwell
from tests.unit.app.test_cuts import shortened as shorten
from upwell.app import Settings, build
from upwell.app.dashboard import compare, sessions
from upwell.app.running import run_command
from upwell.ground.errors import ConfigError
from upwell.ground.project import project_of, tracks
from upwell.ground.types.memory import Memory
from upwell.hosts import HOSTS
from upwell.hosts.install import Installer
from upwell.hosts.installation import Installation
from upwell.surface.lessons import lack_of
from upwell.surface.loaded import MAX_LOOKED_FOR, loaded_by

RULE = "Ferries berth at pier three."
MISSING = "".join(f"@docs/part-{number}.md\n" for number in range(60_000))

INSTRUCTIONS: Mapping[str, Callable[[Path], None]] = {
    "a mention": lambda root: _write(root, f"@~team\n@~nosuchuser/x\n{RULE}"),
    "a long name": lambda root: _write(root, f"@{'a' * 5_000}\n@{'b/' * 3_000}\n{RULE}"),
    "a name with a null": lambda root: _write(root, f"@a\0b\n{RULE}"),
    "itself": lambda root: _write(root, f"@CLAUDE.md\n@./CLAUDE.md\n@../shop/CLAUDE.md\n{RULE}"),
    "a circle": lambda root: _circle(root),
    "a device": lambda root: _write(root, f"@/dev/zero\n@/dev/stdin\n{RULE}"),
    "a pipe": lambda root: _write(root, f"@pipe.md\n{RULE}") or os.mkfifo(root / "pipe.md"),
    "a folder": lambda root: _write(root, f"@.\n@..\n@/\n{RULE}"),
    "a loop of links": lambda root: _write(root, f"@loop.md\n{RULE}") or _link(root / "loop.md"),
    "missing files": lambda root: _write(root, f"{RULE}\n{MISSING}"),
    "crlf and a mark": lambda root: (root / "CLAUDE.md").write_bytes(
        b"\xef\xbb\xbf@a.md\r\n" + RULE.encode() + b"\r\n"
    ),
    "binary": lambda root: (root / "CLAUDE.md").write_bytes(
        bytes(range(256)) * 400 + f"\n\n{RULE}\n".encode()
    ),
}


def _write(root: Path, text: str) -> None:
    (root / "CLAUDE.md").write_text(text)


def _link(path: Path) -> None:
    path.symlink_to(path.name)


def _circle(root: Path) -> None:
    """Files that import each other under ever longer names, and also many missing files."""
    _write(root, f"@a/../b/one.md\n{RULE}")
    (root / "a").mkdir()
    (root / "b").mkdir()
    for name, other in (("one", "two"), ("two", "one")):
        (root / "b" / f"{name}.md").write_text(f"@../b/{other}.md\n{MISSING}")


@pytest.mark.parametrize("kind", INSTRUCTIONS)
def test_instruction_files_with_any_import_are_read_in_a_moment(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "shop"
    (root / ".git").mkdir(parents=True)
    INSTRUCTIONS[kind](root)
    began = time.process_time()
    assert loaded_by("claude", str(root), [RULE, "Gulls steal."]) == {RULE}
    assert time.process_time() - began < 2


def test_no_more_paths_are_tried_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    _circle(tmp_path)
    tried: list[str] = []
    is_file = Path.is_file
    monkeypatch.setattr(Path, "is_file", lambda path: tried.append(str(path)) or is_file(path))
    loaded_by("claude", str(tmp_path), ["Gulls steal."])
    assert 0 < len(tried) <= MAX_LOOKED_FOR


@pytest.mark.parametrize("folder", ["~nosuchuser/x", "~", "~/x"])
def test_any_folder_of_an_event_has_a_project(folder: str) -> None:
    assert project_of(folder)


NO_PATHS = ["/" + "d/" * 3_000, "/" + "d" * 300, "/a\0b", "nowhere/at/all"]


@pytest.mark.parametrize("folder", NO_PATHS, ids=range(len(NO_PATHS)))
def test_a_session_in_a_folder_that_no_system_has_is_replayed(
    folder: str, tmp_path: Path, upwell: Upwell
) -> None:
    events = [
        {"session": "s", "i": 0, "t": 1.0, "kind": "start", "cwd": folder},
        {"session": "s", "i": 1, "t": 2.0, "kind": "prompt", "text": "where?", "cwd": folder},
    ]
    (tmp_path / "events.jsonl").write_text("\n".join(json.dumps(event) for event in events))
    done = upwell("replay", str(tmp_path / "events.jsonl"), "--host", "events", "--json")
    assert json.loads(done.out.splitlines()[-1])["summary"]["sessions"] == 1


@pytest.mark.parametrize("path", ["x" * 300, "a/" * 3_000 + "b", "a\0b"])
def test_an_episode_about_a_file_with_such_a_name_does_not_hold(path: str) -> None:
    memory = Memory(text="It is there.", project="/srv/shop", paths=(path,))
    assert lack_of(memory, "/srv/shop").endswith("is gone")


def test_a_pointer_of_any_size_is_read_in_part(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: " + "x" * 50_000_000)
    tracemalloc.start()
    tracks(str(tmp_path), "a.py")
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


def test_a_pipe_in_place_of_settings_is_named_at_once(tmp_path: Path) -> None:
    where = Installation(user_folder=tmp_path, environment={}, command=("upwell", "serve"))
    hooks = {name: host.hooks for name, host in HOSTS.items() if host.hooks}
    path = hooks["claude"].path(where)
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    errors: list[Exception] = []

    def install() -> None:
        try:
            Installer(where, tmp_path / "hooks.json", hooks).installing("claude")
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=install, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert isinstance(errors[0], ConfigError)


async def test_no_module_of_the_folder_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dashboard runs commands of ours, in the folder in which the gateway was started."""
    repository = tmp_path / "shop"
    (repository / "upwell").mkdir(parents=True)
    module = f"open({str(tmp_path / 'ran')!r}, 'w').close()\n"
    for name in ("upwell/__init__.py", "upwell/__main__.py", "json.py", "click.py"):
        (repository / name).write_text(module)
    monkeypatch.chdir(repository)
    app = await build(Settings(home=tmp_path / "home", environment={"PATH": os.environ["PATH"]}))
    try:
        assert await run_command(app, "--version", seconds=60)
    finally:
        await app.aclose()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "text", ["a word or two " * 700_000, "a line of it\n" * 800_000], ids=["one line", "many lines"]
)
async def test_comparing_a_huge_original_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    app = await build(Settings(home=tmp_path, environment={}))
    longest = 0.0
    step = asyncio.events.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        nonlocal longest
        began = time.thread_time()
        step(handle)
        longest = max(longest, time.thread_time() - began)

    try:
        await shorten(app, text)
        [cut] = await app.cuts.latest(1)
        monkeypatch.setattr(asyncio.events.Handle, "_run", measured)
        [beside] = (await sessions.shortened(app, {"id": cut["id"]}))["texts"]
    finally:
        await app.aclose()
    assert longest < 0.1
    assert beside["is_cut"]
    assert 0 < sum(len(block["text"]) for block in beside["blocks"]) <= compare.MAX_CHARS
