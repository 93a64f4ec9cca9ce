import { lstatSync } from "node:fs"
import net from "node:net"
import { dirname } from "node:path"
import { spawn } from "node:child_process"

const SOCKET = __SOCKET__
const COMMAND = __COMMAND__
const MAX_CHARS = 500000
const WRITES = /write|edit|patch/
const milliseconds = (name, fallback) =>
  Number(process.env["UPWELL_HOOK__" + name]) || fallback
const TOOL_MS = milliseconds("TOOL_MS", 300)
const DEADLINE_MS = {
  "chat.message": milliseconds("PROMPT_MS", 200),
  "session.created": 2000,
}

function isPrivate() {
  try {
    const folder = lstatSync(dirname(SOCKET))
    const socket = lstatSync(SOCKET)
    const me = process.getuid()
    const isClosed = folder.isDirectory() && folder.uid === me && (folder.mode & 0o077) === 0
    return isClosed && socket.isSocket() && socket.uid === me
  } catch {
    return false
  }
}

function viaSocket(event, body, deadline) {
  return new Promise((resolve, reject) => {
    if (!isPrivate()) return reject(new Error("no private socket"))
    const daemon = net.connect(SOCKET)
    const chunks = []
    daemon.setTimeout(deadline, () => {
      resolve("{}")
      daemon.destroy()
    })
    daemon.on("error", reject)
    daemon.on("data", (chunk) => chunks.push(chunk))
    daemon.on("end", () => {
      const reply = Buffer.concat(chunks)
      const at = reply.indexOf(10)
      const isComplete = at > 0 && reply.subarray(0, 3).toString() === "ok "
      if (!isComplete) return reject(new Error("no answer"))
      resolve(reply.subarray(at + 1).toString())
    })
    const head = ["upwell/1", "__VERSION__", "opencode", event, deadline, process.pid, body.length]
    daemon.write(Buffer.concat([Buffer.from(head.join(" ") + "\n"), body]))
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

async function textFor(event, payload) {
  return (await answer(event, payload)).text ?? ""
}

function textOf(output) {
  if (typeof output?.output === "string") return output.output
  const blocks = Array.isArray(output?.content) && !output.isError ? output.content : []
  const texts = blocks.filter((block) => block?.type === "text").map((block) => block.text)
  return texts.length && texts.length === blocks.length ? texts.join("\n") : undefined
}

function replace(output, text) {
  if (typeof output.output === "string") output.output = text
  else output.content = [{ type: "text", text }]
}

function add(output, text) {
  if (typeof output.output === "string") output.output += "\n\n" + text
  else if (Array.isArray(output.content)) output.content.push({ type: "text", text })
}

export const Upwell = async ({ directory }) => {
  const args = new Map()
  const starts = new Map()
  const compacted = new Set()

  async function startText(sessionID) {
    const start = starts.get(sessionID)
    starts.delete(sessionID)
    if (!compacted.delete(sessionID)) return (await start) ?? ""
    return await textFor("session.created", { sessionID, cwd: directory, source: "compact" })
  }

  return {
    event: async ({ event }) => {
      const sessionID = event?.properties?.sessionID ?? event?.properties?.info?.id ?? ""
      if (event?.type === "session.created") {
        const payload = { sessionID, cwd: directory, source: "startup" }
        starts.set(sessionID, textFor("session.created", payload))
      } else if (event?.type === "session.compacted") {
        compacted.add(sessionID)
        await textFor("session.compacting", { sessionID, cwd: directory })
      } else if (event?.type === "session.idle") {
        await textFor("session.idle", { sessionID, cwd: directory })
      }
    },
    "chat.message": async (input, output) => {
      const texts = (output?.parts ?? []).filter((part) => part.type === "text")
      if (!texts.length) return
      const prompt = texts.map((part) => part.text).join("\n")
      const sessionID = input?.sessionID ?? ""
      const start = await startText(sessionID)
      const context = await textFor("chat.message", { sessionID, cwd: directory, prompt })
      const added = [start, context].filter(Boolean).join("\n")
      if (!added) return
      const last = texts[texts.length - 1]
      output.parts.push({ ...last, id: last.id + "u", text: added, synthetic: true })
    },
    "tool.execute.before": async (input, output) => {
      args.set(input.callID, output?.args ?? {})
      if (args.size > 100) args.delete(args.keys().next().value)
    },
    "tool.execute.after": async (input, output) => {
      const callArgs = input.args ?? args.get(input.callID) ?? {}
      args.delete(input.callID)
      if (!output) return
      const text = textOf(output)
      const reply = await answer("tool.execute.after", {
        sessionID: input.sessionID,
        cwd: directory,
        tool_name: input.tool,
        args: callArgs,
        ...(text !== undefined && text.length <= MAX_CHARS ? { output: text } : {}),
      })
      const isFirstLook = compacted.has(input.sessionID) && !WRITES.test(input.tool)
      const start = isFirstLook ? await startText(input.sessionID) : ""
      if (typeof reply.output === "string") replace(output, reply.output)
      const added = [start, reply.text].filter(Boolean).join("\n")
      if (added) add(output, added)
    },
  }
}
