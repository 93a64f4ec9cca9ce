"""OpenCode: a plugin file of ours, which talks to the daemon from inside the host.

Source: OpenCode's plugin documentation and what 1.18.33 did; hooks `chat.message`,
`tool.execute.before`, `tool.execute.after` and `event` (`session.created`, `session.compacted`,
`session.idle`). A built-in tool gives `output`, one of an MCP server `content`. A session that was
compacted goes on without a prompt, so what it is to hear again comes with its next tool, too.

Nothing is started for an event while the daemon runs. It is asked only where `hook/place.py` would
meet it: a socket of the user's in a folder that nobody else may enter.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from upwell.ground.errors import ConfigError
from upwell.hosts.base import Where

MARK = "// Made by `upwell hook install opencode`. Remove it with `upwell hook uninstall opencode`."
_PLUGIN = """\
import { lstatSync } from "node:fs"
import net from "node:net"
import { dirname } from "node:path"
import { spawn } from "node:child_process"

const SOCKET = __SOCKET__
const COMMAND = __COMMAND__
const MOST_CHARS = 500000
const WRITES = /write|edit|patch/
const milliseconds = (name, usual) => Number(process.env["UPWELL_HOOK__" + name]) || usual
const TOOL_MS = milliseconds("TOOL_MS", 300)
const DEADLINE_MS = {
  "chat.message": milliseconds("PROMPT_MS", 200),
  "session.created": 2000,
}

function isOurs() {
  try {
    const folder = lstatSync(dirname(SOCKET))
    const socket = lstatSync(SOCKET)
    const me = process.getuid()
    const closed = folder.isDirectory() && folder.uid === me && (folder.mode & 0o077) === 0
    return closed && socket.isSocket() && socket.uid === me
  } catch {
    return false
  }
}

function viaSocket(event, body, deadline) {
  return new Promise((resolve, reject) => {
    if (!isOurs()) return reject(new Error("not ours"))
    const peer = net.connect(SOCKET)
    const chunks = []
    peer.setTimeout(deadline, () => {
      resolve("{}")
      peer.destroy()
    })
    peer.on("error", reject)
    peer.on("data", (chunk) => chunks.push(chunk))
    peer.on("end", () => {
      const reply = Buffer.concat(chunks)
      const at = reply.indexOf(10)
      const fine = at > 0 && reply.subarray(0, 3).toString() === "ok "
      if (!fine) return reject(new Error("odd"))
      resolve(reply.subarray(at + 1).toString())
    })
    const words = ["upwell/1", "__VERSION__", "opencode", event, deadline, process.pid, body.length]
    peer.write(Buffer.concat([Buffer.from(words.join(" ") + "\\n"), body]))
  })
}

function viaProcess(event, body) {
  return new Promise((resolve) => {
    const child = spawn(COMMAND[0], [...COMMAND.slice(1), "opencode", event], {
      stdio: ["pipe", "pipe", "ignore"],
    })
    const chunks = []
    child.on("error", () => resolve("{}"))
    child.stdin.on("error", () => {})
    child.stdout.on("data", (chunk) => chunks.push(chunk))
    child.on("close", () => resolve(Buffer.concat(chunks).toString() || "{}"))
    child.stdin.end(body)
  })
}

async function answer(event, payload) {
  try {
    const body = Buffer.from(JSON.stringify(payload))
    const reply = await viaSocket(event, body, DEADLINE_MS[event] ?? TOOL_MS).catch(() =>
      viaProcess(event, body),
    )
    return JSON.parse(reply)
  } catch {
    return {}
  }
}

async function ask(event, payload) {
  return (await answer(event, payload)).text ?? ""
}

function textOf(output) {
  if (typeof output?.output === "string") return output.output
  const blocks = Array.isArray(output?.content) && !output.isError ? output.content : []
  const texts = blocks.filter((block) => block?.type === "text").map((block) => block.text)
  return texts.length && texts.length === blocks.length ? texts.join("\\n") : undefined
}

function replace(output, text) {
  if (typeof output.output === "string") output.output = text
  else output.content = [{ type: "text", text }]
}

function add(output, text) {
  if (typeof output.output === "string") output.output += "\\n\\n" + text
  else if (Array.isArray(output.content)) output.content.push({ type: "text", text })
}

export const Upwell = async ({ directory }) => {
  const args = new Map()
  const begun = new Map()
  const compacted = new Set()

  async function opening(sessionID) {
    const began = begun.get(sessionID)
    begun.delete(sessionID)
    if (!compacted.delete(sessionID)) return (await began) ?? ""
    return await ask("session.created", { sessionID, cwd: directory, source: "compact" })
  }

  return {
    event: async ({ event }) => {
      const sessionID = event?.properties?.sessionID ?? event?.properties?.info?.id ?? ""
      if (event?.type === "session.created") {
        const payload = { sessionID, cwd: directory, source: "startup" }
        begun.set(sessionID, ask("session.created", payload))
      } else if (event?.type === "session.compacted") {
        compacted.add(sessionID)
        await ask("session.compacting", { sessionID, cwd: directory })
      } else if (event?.type === "session.idle") {
        await ask("session.idle", { sessionID, cwd: directory })
      }
    },
    "chat.message": async (input, output) => {
      const texts = (output?.parts ?? []).filter((part) => part.type === "text")
      if (!texts.length) return
      const prompt = texts.map((part) => part.text).join("\\n")
      const sessionID = input?.sessionID ?? ""
      const began = await opening(sessionID)
      const said = await ask("chat.message", { sessionID, cwd: directory, prompt })
      const added = [began, said].filter(Boolean).join("\\n")
      if (!added) return
      const last = texts[texts.length - 1]
      output.parts.push({ ...last, id: last.id + "u", text: added, synthetic: true })
    },
    "tool.execute.before": async (input, output) => {
      args.set(input.callID, output?.args ?? {})
      if (args.size > 100) args.delete(args.keys().next().value)
    },
    "tool.execute.after": async (input, output) => {
      const given = input.args ?? args.get(input.callID) ?? {}
      args.delete(input.callID)
      if (!output) return
      const text = textOf(output)
      const said = await answer("tool.execute.after", {
        sessionID: input.sessionID,
        cwd: directory,
        tool_name: input.tool,
        args: given,
        ...(text !== undefined && text.length <= MOST_CHARS ? { output: text } : {}),
      })
      const goesOn = compacted.has(input.sessionID) && !WRITES.test(input.tool)
      const began = goesOn ? await opening(input.sessionID) : ""
      if (typeof said.output === "string") replace(output, said.output)
      const added = [began, said.text].filter(Boolean).join("\\n")
      if (added) add(output, added)
    },
  }
}
"""


class OpenCode:
    """The whole file is ours, or it is not touched."""

    name = "opencode"
    todo = "start OpenCode anew"

    def path(self, where: Where) -> Path:
        return opencode_folder(where) / "plugins" / "upwell.js"

    def present(self, where: Where) -> bool:
        return opencode_folder(where).is_dir()

    def added(self, text: str, where: Where) -> str:
        from upwell import __version__

        self.removed(text)
        filled = _PLUGIN.replace("__SOCKET__", json.dumps(where.socket))
        filled = filled.replace("__COMMAND__", json.dumps(list(where.words)))
        return f"{MARK}\n{filled.replace('__VERSION__', __version__)}"

    def removed(self, text: str, olds: Sequence[str] = ()) -> str:
        if text and not text.startswith(MARK):
            raise ConfigError(
                "plugins/upwell.js was not made by upwell", hint="move it away; it was not touched"
            )
        return ""


def opencode_folder(where: Where) -> Path:
    """Where OpenCode keeps what it is configured with."""
    if named := where.environment.get("OPENCODE_CONFIG_DIR"):
        return Path(named).expanduser()
    return where.base("XDG_CONFIG_HOME", ".config") / "opencode"


HOST = OpenCode()
