"use strict"
// The token travels in a header that only this script sets. It is kept for this tab only.
const PATH = document.body.dataset.path
const KEPT = "upwell-token"
const MAX_ROWS = 300
const main = document.getElementById("main")
const statusLine = document.getElementById("status")
let stream = null
let plots = []
let statusTimer = 0

const given = new URLSearchParams(location.hash.slice(1)).get("token")
if (given) {
  sessionStorage.setItem(KEPT, given)
  history.replaceState(null, "", location.pathname + location.search)
}
const token = () => sessionStorage.getItem(KEPT) || ""
const headers = () => ({ Authorization: `Bearer ${token()}`, "HX-Request": "true" })
const page = () => location.pathname.slice(PATH.length + 1).split("/")[0] || "now"

document.addEventListener("htmx:configRequest", (event) => {
  event.detail.headers.Authorization = `Bearer ${token()}`
})

function say(text, isBad) {
  statusLine.textContent = text
  statusLine.classList.toggle("bad", Boolean(isBad))
  clearTimeout(statusTimer)
  statusTimer = setTimeout(() => { statusLine.textContent = "" }, 8000)
}

function showDoor(why) {
  stopStream()
  sessionStorage.removeItem(KEPT)
  main.replaceChildren()
  main.removeAttribute("aria-busy")
  document.getElementById("door").hidden = false
  document.getElementById("refused").textContent = why
  document.getElementById("token").focus()
}

document.addEventListener("htmx:responseError", (event) => {
  const { status, responseText } = event.detail.xhr
  if (status === 401 || (status === 403 && responseText.includes("owner"))) showDoor("This token is not valid here.")
  else say(responseText || `The server answered ${status}.`, true)
})
document.addEventListener("htmx:sendError", () => say("upwell is not responding.", true))
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target === statusLine) say(statusLine.textContent.trim())
  else dress(event.detail.target)
})
document.addEventListener("htmx:afterRequest", (event) => {
  const element = event.detail.elt
  if (!event.detail.successful) return
  if (element.matches("form[data-reset]")) element.reset()
  if (element.matches(".thumbs button"))
    for (const thumb of element.parentElement.children) thumb.setAttribute("aria-pressed", String(thumb === element))
})

// A change may concern the list of memories, whose filters only this script knows.
document.addEventListener("changed", () => {
  const form = document.querySelector("form[data-filters=memory]")
  if (!form) return
  if (form.hidden) load({ keepsFocus: true })
  else refilter(form)
})

async function load({ keepsFocus = false } = {}) {
  if (!token()) return showDoor("")
  document.getElementById("door").hidden = true
  stopStream()
  main.setAttribute("aria-busy", "true")
  const shown = page()
  await htmx.ajax("GET", `${PATH}/view/${shown}${location.search}`, { target: "#main", swap: "innerHTML" })
  main.removeAttribute("aria-busy")
  if (!main.firstElementChild) return
  for (const link of document.querySelectorAll("header nav a")) {
    if (link.dataset.page === shown) link.setAttribute("aria-current", "page")
    else link.removeAttribute("aria-current")
  }
  const heading = main.querySelector("h1")
  document.title = `${heading ? heading.textContent : "upwell"} · upwell`
  if (!keepsFocus) {
    main.focus({ preventScroll: true })
    scrollTo(0, 0)
  }
  if (main.querySelector("[data-stream]")) startStream()
}

function go(address) {
  clearTimeout(typing)
  history.pushState(null, "", address)
  load()
}

addEventListener("popstate", () => load())

// Filters change only the list, so that the field keeps its focus.
function queryOf(form) {
  const query = new URLSearchParams()
  for (const [name, value] of new FormData(form)) if (value) query.set(name, value)
  return query
}

const LISTS = { now: ["rows", "#events", "before"], memory: ["memories", "#memories", "offset"], sessions: ["sessionlist", "#past", "before"] }

async function refilter(form) {
  if (!form.isConnected) return
  const query = queryOf(form)
  const [view, target] = LISTS[form.dataset.filters]
  const text = query.toString()
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""))
  await htmx.ajax("GET", `${PATH}/view/${view}?${text}`, { target, swap: "innerHTML" })
  if (form.dataset.filters === "now" && form.isConnected) startStream()
}

let typing = 0
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-filters]")
  if (!form) return
  clearTimeout(typing)
  typing = setTimeout(() => refilter(form), event.target.matches("select, [type=checkbox]") ? 0 : 250)
})
document.addEventListener("submit", (event) => {
  if (event.target.matches("form[data-filters]")) {
    event.preventDefault()
    refilter(event.target)
  }
  if (event.target.id === "ask") {
    event.preventDefault()
    sessionStorage.setItem(KEPT, document.getElementById("token").value.trim())
    load()
  }
})

async function showMore(button) {
  const [view, , name] = LISTS[page()]
  const query = new URLSearchParams(location.search)
  query.set(name, button.dataset.more)
  const item = button.closest("li")
  item.id = "more"
  await htmx.ajax("GET", `${PATH}/view/${view}?${query}`, { target: "#more", swap: "outerHTML" })
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-page]")
  if (link && !event.metaKey && !event.ctrlKey && !event.shiftKey && event.button === 0) {
    event.preventDefault()
    return go(link.getAttribute("href"))
  }
  const button = event.target.closest("button")
  if (!button) return
  if (button.dataset.more) showMore(button)
  else if (button.dataset.copy !== undefined) copy(button.dataset.copy)
  else if (button.dataset.card !== undefined) saveCard()
  else if (button.id === "pause") setPaused(button.getAttribute("aria-pressed") !== "true")
})

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text)
    say("Copied.")
  } catch {
    say(text)
  }
}

// The stream: server-sent events, read with fetch, because EventSource sends no header.
let after = "0"
let waiting = []
let isPaused = false

function stopStream() {
  if (stream) stream.abort()
  stream = null
  waiting = []
  isPaused = false
}

async function startStream() {
  stopStream()
  setPaused(false)
  const own = (stream = new AbortController())
  after = document.querySelector("[data-stream]").dataset.stream
  let wait = 1000
  while (!own.signal.aborted) {
    try {
      const answer = await fetch(`${PATH}/stream?${sinceLast()}`, { headers: headers(), signal: own.signal })
      if (answer.status === 401) return
      wait = 1000
      await readStream(answer.body.pipeThrough(new TextDecoderStream()).getReader())
    } catch {
      if (own.signal.aborted) return
    }
    await new Promise((done) => setTimeout(done, wait))
    wait = Math.min(30000, wait * 2)
  }
}

function sinceLast() {
  const query = new URLSearchParams(location.search)
  query.set("after", after)
  return query
}

async function readStream(reader) {
  let text = ""
  for (;;) {
    const { value, done } = await reader.read()
    if (done) return
    text += value
    const messages = text.split("\n\n")
    text = messages.pop()
    for (const message of messages) {
      const lines = message.split("\n").filter((line) => line.startsWith("data: "))
      const id = message.match(/^id: (.+)$/m)
      if (id) after = id[1]
      if (lines.length) arrived(lines.map((line) => line.slice(6)).join("\n"))
    }
  }
}

function arrived(html) {
  // Parsed in a template: nothing in it loads or runs, and the server has escaped all text.
  const template = document.createElement("template")
  template.innerHTML = html
  const rows = [...template.content.querySelectorAll("li.event")]
  if (!isPaused) return prepend(rows)
  const replaced = new Set(rows.flatMap((row) => [row.id, row.dataset.replaces]))
  waiting = [...rows, ...waiting.filter((row) => !replaced.has(row.id))].slice(0, MAX_ROWS)
  document.getElementById("waiting").textContent = `${waiting.length} new`
}

function prepend(rows) {
  const list = document.getElementById("events")
  if (!list) return
  for (const row of rows) for (const id of [row.id, row.dataset.replaces]) document.getElementById(id)?.remove()
  const hadMore = list.querySelector("li.more")
  list.prepend(...rows)
  rows.forEach((row) => { row.classList.add("fresh"); htmx.process(row); dress(row) })
  const events = list.querySelectorAll("li.event")
  if (events.length > MAX_ROWS) [...events].slice(MAX_ROWS).forEach((row) => row.remove())
  if (events.length > MAX_ROWS && hadMore) hadMore.remove()
  if (rows.length) document.querySelector(".empty")?.remove()
}

function setPaused(now) {
  const button = document.getElementById("pause")
  if (!button) return
  isPaused = now
  button.setAttribute("aria-pressed", String(now))
  button.textContent = now ? "Resume" : "Pause"
  if (now) return
  document.getElementById("waiting").textContent = ""
  prepend(waiting.splice(0))
}

// Times in the reader's zone, and plots.
function dress(root) {
  for (const time of root.querySelectorAll("time[data-clock]")) {
    const at = new Date(time.dateTime)
    const isToday = at.toDateString() === new Date().toDateString()
    const minutes = { hour: "2-digit", minute: "2-digit" }
    const clock = at.toLocaleTimeString([], isToday ? { ...minutes, second: "2-digit" } : minutes)
    const needsDay = !isToday && time.dataset.clock !== "short"
    time.textContent = needsDay ? `${at.toLocaleDateString([], { month: "short", day: "numeric" })} ${clock}` : clock
    delete time.dataset.clock
  }
  plots = plots.filter((plot) => plot.root.isConnected || plot.destroy())
  for (const place of root.querySelectorAll("[data-plot]")) draw(place)
}

// Loaded with the first plot, because a style sheet holds up the first paint of every page.
let plotting = null
function loadPlots() {
  const style = Object.assign(document.createElement("link"), { rel: "stylesheet", href: `${PATH}/assets/vendor/uplot.min.css` })
  const script = Object.assign(document.createElement("script"), { src: `${PATH}/assets/vendor/uplot.min.js` })
  const loaded = [style, script].map((file) => new Promise((done, failed) => {
    file.addEventListener("load", done, { once: true })
    file.addEventListener("error", failed, { once: true })
  }))
  // Before our own style sheet, whose rules follow those of the library.
  document.querySelector("link[rel=stylesheet]").before(style)
  document.head.append(script)
  return Promise.all(loaded)
}

async function draw(place) {
  const { days, series } = JSON.parse(place.dataset.plot)
  if (days.length < 2) {
    place.textContent = "The plot appears from the second day on."
    return
  }
  if (!series.some((one) => one.values.some(Boolean))) {
    place.textContent = "Nothing was saved or said in these days."
    return
  }
  try {
    await (plotting ??= loadPlots())
  } catch {
    plotting = null
    place.textContent = "The plot could not be loaded. Reload the page."
    return
  }
  const probe = place.appendChild(document.createElement("i"))
  const colour = (name) => {
    probe.style.color = `var(${name})`
    return getComputedStyle(probe).color
  }
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } }
  const day = (at) => new Date(at * 1000).toLocaleDateString([], { month: "short", day: "numeric" })
  const bars = uPlot.paths.bars({ size: [0.6, 40], radius: 0.15 })
  const plot = new uPlot({
    width: place.clientWidth, height: 220, legend: { live: false },
    series: [{ label: "day", value: (_, at) => (at ? day(at) : "–") }, ...series.map((one, index) => ({ label: one.label, stroke: colour(index ? "--warm" : "--water"), fill: index ? undefined : colour("--water"), width: index ? 2 : 0, paths: index ? undefined : bars, points: { show: false } }))],
    axes: [{ ...axis, values: (_, values) => values.map(day) }, { ...axis, size: 64, values: (_, values) => values.map((value) => (Math.abs(value) >= 1000 ? `${value / 1000}k` : value)) }],
    scales: { x: { time: true, range: (_, first, last) => [first - 43200, last + 43200] } },
    cursor: { drag: { x: false, y: false } },
  }, [days.map((name) => Date.parse(`${name}T12:00`) / 1000), ...series.map((one) => one.values)], place)
  probe.remove()
  plots.push(plot)
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (plots.length) load() })
addEventListener("resize", () => {
  for (const plot of plots) plot.setSize({ width: plot.root.parentElement.clientWidth, height: 220 })
})

// A card to share, drawn here: nothing is sent anywhere.
function saveCard() {
  const card = document.getElementById("card").dataset
  const canvas = document.createElement("canvas")
  canvas.width = 1200
  canvas.height = 630
  const pen = canvas.getContext("2d")
  const ground = pen.createLinearGradient(0, 0, 1200, 630)
  ground.addColorStop(0, "#0b4f9c")
  ground.addColorStop(1, "#0a2540")
  pen.fillStyle = ground
  pen.fillRect(0, 0, 1200, 630)
  const write = (text, size, y, colour, weight = 400) => {
    pen.fillStyle = colour
    pen.font = `${weight} ${size}px system-ui, sans-serif`
    pen.fillText(text, 80, y)
  }
  write("upwell", 40, 120, "#9cc9ff", 600)
  write(card.net, 150, 310, "#ffffff", 700)
  write(`tokens kept out of the context in ${card.days} days`, 42, 380, "#dcebff")
  const facts = [`${card.results} long result${card.results === 1 ? "" : "s"}`, card.share && `${card.share} shorter`, card.money && `about ${card.money}`]
  write(facts.filter(Boolean).join("  ·  "), 36, 480, "#9cc9ff")
  write("after subtracting what agents read again and what upwell said", 26, 560, "#7fa6d6")
  canvas.toBlob((blob) => {
    const link = document.createElement("a")
    link.href = URL.createObjectURL(blob)
    link.download = "upwell-gain.png"
    link.click()
    URL.revokeObjectURL(link.href)
    say("Saved upwell-gain.png.")
  })
}

load({ keepsFocus: true })
