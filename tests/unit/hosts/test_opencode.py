"""OpenCode's plugin in a real runtime, with a socket that another user may have created."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from upwell.hosts.installation import Installation
from upwell.hosts.opencode import HOST

DRIVER = """
import { Upwell } from PLUGIN
const hooks = await Upwell({ directory: "/" })
const output = { parts: [{ type: "text", text: "my prompt" }] }
await hooks["chat.message"]({ sessionID: "ses_1" }, output)
console.log(output.parts.map((part) => `${part.synthetic ?? "user"}: ${part.text}`).join("\\n"))
"""
LATER = """
import { Upwell } from PLUGIN
const hooks = await Upwell({ directory: "/" })
const called = async (tool, output) => {
  await hooks["tool.execute.after"]({ sessionID: "ses_1", callID: "c", tool, args: {} }, output)
  return output
}
const block = (text) => ({ type: "text", text })
const said = [await called("tides_list", { content: [block("a"), block("b")] })]
said.push(await called("tides_list", { content: [block("a"), { type: "image", data: "" }] }))
said.push(await called("tides_list", { content: [block("a")], isError: true }))
said.push(await called("tides_list", undefined))
await hooks.event({ event: { type: "session.compacted", properties: { sessionID: "ses_1" } } })
for (const tool of ["write", "bash", "bash"]) said.push(await called(tool, { output: "x" }))
console.log(JSON.stringify(said))
"""
NODE = Path(sys.executable).with_name("node")
REPLY = b'ok 1\n{"text": "INJECTED"}'


@dataclass
class Listener:
    """Answers every connection and records it. `reply` may depend on the request."""

    path: Path
    reply: Callable[[bytes], bytes] = lambda question: REPLY
    calls: list[bytes] = field(default_factory=list)

    def run(self, server: socket.socket) -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            self.calls.append(peer.recv(65_536))
            peer.sendall(self.reply(self.calls[-1]))
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


def driven(tmp_path: Path, path: Path, script: str) -> str:
    where = Installation(
        user_folder=tmp_path, environment={}, command=("/bin/false",), socket=str(path)
    )
    plugin, driver = tmp_path / "plugin.mjs", tmp_path / "driver.mjs"
    plugin.write_text(HOST.hooks.with_ours("", where))
    driver.write_text(script.replace("PLUGIN", json.dumps(str(plugin))))
    done = subprocess.run([str(NODE), str(driver)], capture_output=True, timeout=60, check=True)
    return done.stdout.decode().strip()


def prompted(tmp_path: Path, path: Path) -> str:
    """The parts of a prompt after the plugin has processed it."""
    return driven(tmp_path, path, DRIVER)


def test_the_plugin_talks_to_our_daemon(tmp_path: Path, listener: Listener) -> None:
    assert prompted(tmp_path, listener.path) == "user: my prompt\ntrue: INJECTED"
    assert b"my prompt" in listener.calls[0]


def test_the_plugin_avoids_a_folder_that_others_may_enter(
    tmp_path: Path, listener: Listener
) -> None:
    listener.path.parent.chmod(0o755)
    assert prompted(tmp_path, listener.path) == "user: my prompt"
    assert listener.calls == []


def test_a_link_is_not_followed(tmp_path: Path, listener: Listener) -> None:
    (tmp_path / "v").symlink_to(listener.path.parent)
    assert prompted(tmp_path, tmp_path / "v" / "k.sock") == "user: my prompt"
    (listener.path.parent / "l.sock").symlink_to(listener.path)
    assert prompted(tmp_path, listener.path.with_name("l.sock")) == "user: my prompt"
    assert listener.calls == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give things away")
@pytest.mark.parametrize("which", ["folder", "socket"])
def test_the_plugin_avoids_a_socket_of_another_user(
    tmp_path: Path, listener: Listener, which: str
) -> None:
    os.chown(listener.path if which == "socket" else listener.path.parent, 12345, 12345)
    assert prompted(tmp_path, listener.path) == "user: my prompt"
    assert listener.calls == []


def test_tools_of_servers_get_memories_and_so_does_a_compacted_session(
    tmp_path: Path, listener: Listener
) -> None:
    """A server's tool returns blocks. After a compaction the context comes once, with the next tool
    that does not write."""

    def reply(question: bytes) -> bytes:
        head = question.split(b"\n")[0].split()
        goes_on = b'"compact"' in question
        answer = (
            {"text": "RULES"}
            if goes_on
            else {"output": "short"}
            if b'"output":"a' in question
            else {}
        )
        return b"ok 1\n" + json.dumps(answer if b"session.compacting" not in head else {}).encode()

    listener.reply = reply
    fitted, mixed, failed, nothing, *after = json.loads(driven(tmp_path, listener.path, LATER))
    assert fitted == {"content": [{"type": "text", "text": "short"}]}
    assert mixed["content"][0] == {"type": "text", "text": "a"}
    assert failed == {"content": [{"type": "text", "text": "a"}], "isError": True}
    assert nothing is None
    assert after == [{"output": "x"}, {"output": "x\n\nRULES"}, {"output": "x"}]
    assert sum(b"session.compacting" in call for call in listener.calls) == 1
