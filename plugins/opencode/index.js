import { createHash } from "node:crypto"
import { lstatSync, realpathSync } from "node:fs"
import { homedir } from "node:os"
import net from "node:net"
import { dirname } from "node:path"
import { spawn } from "node:child_process"

const SOCKET = usualSocket()
const COMMAND = []
// The folder of the npm package that contains this file, or "" in a file that upwell installed.
const PACKAGE = import.meta.dirname
const MAX_CHARS = 500000
const WRITES = /write|edit|patch/
const milliseconds = (name, fallback) =>
  Number(process.env["UPWELL_HOOK__" + name]) || fallback
const TOOL_MS = milliseconds("TOOL_MS", 300)
const DEADLINE_MS = {
  "chat.message": milliseconds("PROMPT_MS", 200),
  "session.created": 2000,
}

// A user may have both the package and the file. Whichever is loaded first answers.
const isFirst = (globalThis[Symbol.for("upwell")] ??= import.meta.url) === import.meta.url

// As in hook/place.py.
function usualSocket() {
  const { UPWELL_HOME, XDG_DATA_HOME } = process.env
  const data =
    process.platform === "darwin"
      ? `${homedir()}/Library/Application Support`
      : XDG_DATA_HOME || `${homedir()}/.local/share`
  let home = UPWELL_HOME || `${data}/upwell`
  try {
    home = realpathSync(home)
  } catch {
    // There is no home yet, and therefore no daemon.
  }
  const key = createHash("sha256").update(home).digest("hex").slice(0, 24)
  return `/tmp/upwell-${process.getuid()}/${key}.sock`
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
    const head = ["upwell/1", "0.3.0", "opencode", event, deadline, process.pid, body.length]
    daemon.write(Buffer.concat([Buffer.from(head.join(" ") + "\n"), body]))
  })
}

function viaProcess(event, body) {
  return new Promise((resolve) => {
    const verb = event === "session.created" ? "start" : "hook"
    const [program, ...words] = PACKAGE ? ["sh", `${PACKAGE}/run`, verb] : COMMAND
    const child = spawn(program, [...words, "opencode", event], {
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

function textOf(content) {
  if (typeof content === "string") return content
  const blocks = Array.isArray(content) ? content : []
  const texts = blocks.filter((block) => block?.type === "text").map((block) => block.text)
  return texts.length && texts.length === blocks.length ? texts.join("\n") : undefined
}

function replaced(content, text) {
  return typeof content === "string" ? text : [{ type: "text", text }]
}

function extended(content, text) {
  if (typeof content === "string") return content + "\n\n" + text
  return Array.isArray(content) ? [...content, { type: "text", text }] : content
}

function outcomeOf(metadata, isError) {
  const exit = metadata?.exit
  // A command that was stopped or timed out has no status.
  if (isError || exit === null || metadata?.timeout === true) return { failed: true }
  return Number.isInteger(exit) ? { exit } : {}
}

const joined = (...texts) => texts.filter(Boolean).join("\n")

function sessions(folderOf) {
  const starts = new Map()
  const compacted = new Set()
  const subagents = new Set()

  async function tell(event, sessionID, more) {
    return await answer(event, { sessionID, cwd: await folderOf(sessionID), ...more })
  }

  async function startText(sessionID) {
    const start = starts.get(sessionID)
    starts.delete(sessionID)
    if (!compacted.delete(sessionID)) return (await start)?.text
    return (await tell("session.created", sessionID, { source: "compact" })).text
  }

  return {
    created(sessionID, parentID) {
      if (parentID) subagents.add(sessionID)
      const source = parentID ? "subagent" : "startup"
      starts.set(sessionID, tell("session.created", sessionID, { source }))
    },
    async compacted(sessionID) {
      compacted.add(sessionID)
      await tell("session.compacting", sessionID)
    },
    async idle(sessionID) {
      await tell("session.idle", sessionID)
    },
    async asked(sessionID, prompt) {
      const start = await startText(sessionID)
      if (!prompt || subagents.has(sessionID)) return start ?? ""
      return joined(start, (await tell("chat.message", sessionID, { prompt })).text)
    },
    async called(sessionID, tool, args, content, outcome) {
      const text = textOf(content)
      const reply = await tell("tool.execute.after", sessionID, {
        tool_name: tool,
        args,
        ...outcome,
        ...(text !== undefined && text.length <= MAX_CHARS ? { output: text } : {}),
      })
      const isFirstLook = compacted.has(sessionID) && !WRITES.test(tool)
      const start = isFirstLook ? await startText(sessionID) : ""
      const isReplaced = typeof reply.output === "string" && !outcome.failed
      return {
        content: isReplaced ? replaced(content, reply.output) : content,
        added: joined(start, reply.text),
      }
    },
  }
}

// Of OpenCode 1.x. An entry of the user's own stays as it is.
function configured(settings) {
  const command = ["sh", `${PACKAGE}/run`, "serve"]
  settings.mcp = { upwell: { type: "local", command, timeout: 120000 }, ...settings.mcp }
  const paths = [...(settings.skills?.paths ?? []), `${PACKAGE}/skills`]
  settings.skills = { ...settings.skills, paths }
}

// OpenCode 1.x
export const Upwell = async ({ directory }) => {
  if (!isFirst) return {}
  const args = new Map()
  const host = sessions(() => directory)
  return {
    ...(PACKAGE ? { config: async (settings) => configured(settings) } : {}),
    event: async ({ event }) => {
      const info = event?.properties?.info
      const sessionID = event?.properties?.sessionID ?? info?.id ?? ""
      if (event?.type === "session.created") host.created(sessionID, info?.parentID)
      else if (event?.type === "session.compacted") await host.compacted(sessionID)
      else if (event?.type === "session.idle") await host.idle(sessionID)
    },
    "chat.message": async (input, output) => {
      const texts = (output?.parts ?? []).filter((part) => part.type === "text")
      const own = texts.filter((part) => !part.synthetic && !part.ignored)
      if (!own.length) return
      const prompt = own.map((part) => part.text).join("\n")
      const added = await host.asked(input?.sessionID ?? "", prompt)
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
      const field = typeof output.output === "string" ? "output" : "content"
      const outcome = outcomeOf(output.metadata, output.isError)
      const done = await host.called(input.sessionID, input.tool, callArgs, output[field], outcome)
      if (done.content === undefined) return
      output[field] = done.added ? extended(done.content, done.added) : done.content
    },
  }
}

const ENDS = /^session\.execution\.(succeeded|failed|interrupted)$/

// OpenCode 2.x. Its requests are made anew for every step, so a session's texts are added each time.
async function setup(ctx) {
  // OpenCode 1.x calls this too, without these hooks.
  const hasHooks = [ctx?.session?.hook, ctx?.tool?.hook].every((hook) => typeof hook === "function")
  if (!isFirst || !hasHooks) return
  const loadedAt = Date.now()
  const known = new Map()
  const texts = new Map()
  const started = new Set()

  async function sessionOf(sessionID) {
    if (!known.has(sessionID)) {
      const found = Promise.resolve(ctx.session.get?.({ sessionID })).catch(() => undefined)
      known.set(sessionID, (await found) ?? {})
    }
    return known.get(sessionID)
  }

  function add(sessionID, text) {
    if (text) texts.set(sessionID, [...(texts.get(sessionID) ?? []), text])
  }

  const folderOf = async (sessionID) =>
    (await sessionOf(sessionID)).location?.directory ?? ctx.location?.directory ?? process.cwd()
  const host = sessions(folderOf)

  await ctx.session.hook("prompt", async ({ sessionID, prompt }) => {
    const { parentID, time } = await sessionOf(sessionID)
    const isNew = new Date(time?.created).getTime() >= loadedAt
    if (isNew && !started.has(sessionID)) host.created(sessionID, parentID)
    started.add(sessionID)
    add(sessionID, await host.asked(sessionID, parentID ? "" : prompt?.text))
  })
  await ctx.session.hook("context", (event) => {
    for (const text of texts.get(event.sessionID) ?? []) event.system.push({ type: "text", text })
  })
  await ctx.tool.hook("execute.after", async (event) => {
    const isError = event.status === "error"
    const content = isError ? event.error?.message : event.result?.content
    const outcome = outcomeOf(event.result?.metadata, isError)
    const done = await host.called(event.sessionID, event.tool, event.input, content, outcome)
    if (isError) add(event.sessionID, done.added)
    else if (done.added || done.content !== content) {
      const whole = done.added ? extended(done.content, done.added) : done.content
      event.result = { ...event.result, content: whole }
    }
  })
  follow(ctx, async (type, sessionID) => {
    if (type === "session.compaction.ended") {
      texts.delete(sessionID)
      await host.compacted(sessionID)
    } else if (ENDS.test(type)) await host.idle(sessionID)
  })
}

async function follow(ctx, heard) {
  const here = ctx.location?.directory
  try {
    for await (const event of ctx.event.subscribe()) {
      const folder = event.location?.directory
      const sessionID = event.data?.sessionID
      if (sessionID && (!folder || !here || folder === here)) await heard(event.type, sessionID)
    }
  } catch {
    // The host ends the stream when it unloads the plugin.
  }
}

export default { id: "upwell", server: Upwell, setup }
