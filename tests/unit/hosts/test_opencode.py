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
from typing import Any

import pytest

from upwell.hook.place import DaemonPlace
from upwell.hosts.installation import Installation
from upwell.hosts.opencode import HOST, packaged_plugin

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


OUTCOMES = """
import upwell, { Upwell } from PLUGIN
const hooks = await Upwell({ directory: "/" })
const called = (tool, output) =>
  hooks["tool.execute.after"]({ sessionID: "ses_1", callID: "c", tool, args: {} }, output)
await called("bash", { output: "no rule", metadata: { exit: 2 } })
await called("bash", { output: "exit code 2", metadata: { exit: 0 } })
await called("bash", { output: "half", metadata: { exit: null } })
await called("tides_list", { content: [{ type: "text", text: "no" }], isError: true })
console.log(JSON.stringify([upwell.id, upwell.server === Upwell, typeof upwell.setup]))
"""
AUTHORS = """
import { Upwell } from PLUGIN
const hooks = await Upwell({ directory: "/" })
const text = (words, more) => ({ type: "text", id: "p", text: words, ...more })
const created = (info) => hooks.event({ event: { type: "session.created", properties: { info } } })
const said = async (sessionID, ...parts) => hooks["chat.message"]({ sessionID }, { parts })
await created({ id: "ses_1" })
await created({ id: "ses_2", parentID: "ses_1" })
await said("ses_1", text("my words"), text("of a file", { synthetic: true }))
await said("ses_1", text("only a notice", { synthetic: true }))
await said("ses_2", text("of the agent"))
"""
SECOND = """
import upwell from PLUGIN
const hooks = {}
const hook = (domain) => async (name, run) => (hooks[domain + name] = run)
const stop = { type: "session.execution.succeeded", data: { sessionID: "ses_1" } }
const ctx = {
  location: { directory: "/code" },
  session: {
    hook: hook("session."),
    get: async ({ sessionID }) => ({
      location: { directory: "/code/" + sessionID },
      time: { created: sessionID === "ses_1" ? Date.now() + 1000 : 5 },
    }),
  },
  tool: { hook: hook("tool.") },
  event: { subscribe: async function* () { yield stop } },
}
await upwell.setup({ ...ctx, tool: {} })
console.log(Object.keys(hooks).length)
await upwell.setup(ctx)
const prompt = { text: "my prompt" }
for (const sessionID of ["ses_1", "ses_2"]) await hooks["session.prompt"]({ sessionID, prompt })
const request = { sessionID: "ses_1", system: [] }
await hooks["session.context"](request)
const metadata = { exit: 2 }
const call = { sessionID: "ses_1", tool: "shell", input: {}, status: "completed" }
const event = { ...call, result: { content: "no rule", metadata } }
await hooks["tool.execute.after"](event)
console.log(JSON.stringify([prompt.text, request.system, event.result]))
"""


def told(listener: Listener) -> list[tuple[str, dict[str, Any]]]:
    """The events that the plugin sent, and their payloads."""
    heads = [call.split(b"\n", 1) for call in listener.calls]
    return [(head.split()[3].decode(), json.loads(body)) for head, body in heads]


def test_the_plugin_says_how_a_command_ended(tmp_path: Path, listener: Listener) -> None:
    exports = json.loads(driven(tmp_path, listener.path, OUTCOMES))
    assert exports == ["upwell", True, "function"]
    payloads = [payload for _, payload in told(listener)]
    events = [HOST.events.read("tool.execute.after", payload) for payload in payloads]
    answers = [event.answer for event in events if event and event.answer]
    assert [answer.failed for answer in answers] == [True, False, True, True]
    assert [answer.text for answer in answers][:2] == ["no rule", "exit code 2"]
    replies = [event.reply for event in events if event]
    assert replies == [None, "exit code 2", None, None], "a failed result is not shortened"


def test_only_the_users_own_words_are_a_prompt(tmp_path: Path, listener: Listener) -> None:
    driven(tmp_path, listener.path, AUTHORS)
    assert [payload["prompt"] for name, payload in told(listener) if name == "chat.message"] == [
        "my words"
    ]
    sources = {p["sessionID"]: p["source"] for name, p in told(listener) if "source" in p}
    assert sources == {"ses_1": "startup", "ses_2": "subagent"}


def test_the_plugin_has_an_entry_for_version_2(tmp_path: Path, listener: Listener) -> None:
    """Without the hooks of 2.x, which 1.x leaves out, the entry does nothing."""
    hooks, whole = driven(tmp_path, listener.path, SECOND).splitlines()
    assert hooks == "0"
    prompt, system, result = json.loads(whole)
    assert prompt == "my prompt"
    assert system == [{"type": "text", "text": "INJECTED\nINJECTED"}]
    assert result["content"] == "no rule\n\nINJECTED"
    names = [(name, payload["sessionID"], payload["cwd"]) for name, payload in told(listener)]
    assert sorted(names) == [
        ("chat.message", "ses_1", "/code/ses_1"),
        ("chat.message", "ses_2", "/code/ses_2"),
        ("session.created", "ses_1", "/code/ses_1"),
        ("session.idle", "ses_1", "/code/ses_1"),
        ("tool.execute.after", "ses_1", "/code/ses_1"),
    ]
    assert [p["exit"] for name, p in told(listener) if name == "tool.execute.after"] == [2]


PACKAGED = """
import { Upwell } from PLUGIN
import { Upwell as Second } from SECOND
const settings = { mcp: { upwell: { type: "remote" } }, skills: { paths: ["/mine"] } }
const hooks = await Upwell({ directory: "/" })
await hooks.config(settings)
const other = {}
await hooks.config(other)
const output = { parts: [{ type: "text", text: "my prompt" }] }
await hooks["chat.message"]({ sessionID: "ses_1" }, output)
const second = Object.keys(await Second({ directory: "/" }))
console.log(JSON.stringify([settings, other, output.parts.length, second]))
"""


def test_the_package_finds_the_daemon_and_brings_server_and_skills(tmp_path: Path) -> None:
    """The daemon of a home whose path goes through a link. Of two copies, one answers."""
    home, folder = tmp_path / "home", tmp_path / "package"
    (tmp_path / "real").mkdir()
    home.symlink_to(tmp_path / "real")
    folder.mkdir()
    for name in ("first.mjs", "second.mjs"):
        (folder / name).write_text(packaged_plugin())
    (folder / "run").write_text("echo '{}'")
    place = DaemonPlace(str(home))
    Path(place.folder).mkdir(mode=0o700, exist_ok=True)
    driver = tmp_path / "driver.mjs"
    script = PACKAGED.replace("PLUGIN", json.dumps(str(folder / "first.mjs")))
    driver.write_text(script.replace("SECOND", json.dumps(str(folder / "second.mjs"))))
    heard = Listener(Path(place.socket))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place.socket)
        server.listen()
        threading.Thread(target=heard.run, args=(server,), daemon=True).start()
        env = {**os.environ, "UPWELL_HOME": str(home)}
        command = [str(NODE), str(driver)]
        done = subprocess.run(command, env=env, capture_output=True, timeout=60, check=True)
    os.unlink(place.socket)
    settings, other, parts, second = json.loads(done.stdout)
    assert settings == {
        "mcp": {"upwell": {"type": "remote"}},
        "skills": {"paths": ["/mine", f"{folder}/skills"]},
    }
    assert other["mcp"]["upwell"]["command"] == ["sh", f"{folder}/run", "serve"]
    assert parts == 2
    assert second == []
    assert len(heard.calls) == 1
