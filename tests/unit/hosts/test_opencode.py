"""OpenCode's plugin, in a real runtime, beside a socket that somebody else may have made."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from upwell.hosts.base import Where
from upwell.hosts.opencode import HOST

DRIVER = """
import { Upwell } from PLUGIN
const hooks = await Upwell({ directory: "/" })
const output = { parts: [{ type: "text", text: "my prompt" }] }
await hooks["chat.message"]({ sessionID: "ses_1" }, output)
console.log(output.parts[0].text)
"""
NODE = Path(sys.executable).with_name("node")
REPLY = b'ok 1\n{"text": "INJECTED"}'


@dataclass
class Listener:
    """Answers whoever connects, and remembers that somebody did."""

    path: Path
    calls: list[bytes] = field(default_factory=list)

    def run(self, server: socket.socket) -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            self.calls.append(peer.recv(65_536))
            peer.sendall(REPLY)
            peer.close()


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    folder = tmp_path / "u"
    folder.mkdir(mode=0o700)
    heard = Listener(folder / "k.sock")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(heard.path))
    server.listen()
    threading.Thread(target=heard.run, args=(server,), daemon=True).start()
    yield heard
    server.close()


def prompted(tmp_path: Path, path: Path) -> str:
    where = Where(folder=tmp_path, environment={}, command=("/bin/false",), socket=str(path))
    plugin, driver = tmp_path / "plugin.mjs", tmp_path / "driver.mjs"
    plugin.write_text(HOST.added("", where))
    driver.write_text(DRIVER.replace("PLUGIN", json.dumps(str(plugin))))
    done = subprocess.run([str(NODE), str(driver)], capture_output=True, timeout=60, check=True)
    return done.stdout.decode().strip()


def test_a_daemon_of_ours_is_heard(tmp_path: Path, listener: Listener) -> None:
    assert "INJECTED" in prompted(tmp_path, listener.path)
    assert b"my prompt" in listener.calls[0]


def test_a_folder_that_others_may_enter_is_not_talked_to(
    tmp_path: Path, listener: Listener
) -> None:
    listener.path.parent.chmod(0o755)
    assert prompted(tmp_path, listener.path) == "my prompt"
    assert listener.calls == []


def test_a_link_is_not_followed(tmp_path: Path, listener: Listener) -> None:
    (tmp_path / "v").symlink_to(listener.path.parent)
    assert prompted(tmp_path, tmp_path / "v" / "k.sock") == "my prompt"
    (listener.path.parent / "l.sock").symlink_to(listener.path)
    assert prompted(tmp_path, listener.path.with_name("l.sock")) == "my prompt"
    assert listener.calls == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give things away")
@pytest.mark.parametrize("which", ["folder", "socket"])
def test_what_another_user_owns_is_not_talked_to(
    tmp_path: Path, listener: Listener, which: str
) -> None:
    os.chown(listener.path if which == "socket" else listener.path.parent, 12345, 12345)
    assert prompted(tmp_path, listener.path) == "my prompt"
    assert listener.calls == []
