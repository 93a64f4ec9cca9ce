"""The first event, when no daemon runs yet: a look into the memory with nothing but SQLite.

Loading what surfacing really decides with takes longer than a hook may. So this says only what is
plain: memories that hold most of what a prompt asks, or that are about exactly the file that is
read; a part of what the daemon would say. What was said goes into the ledger, so that nothing is
repeated. Where settings of surfacing were changed it keeps silent, since it does not read them.
"""

import json
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing

from upwell.hook.plain import Payload, Sure, about_file, by_words
from upwell.hook.spool import leave
from upwell.surface.frame import REMINDER, TAG, harmless_line

PROMPTS = frozenset(
    "UserPromptSubmit BeforeAgent beforeSubmitPrompt chat.message userPromptSubmitted".split()
)
TOOLS = frozenset({"PostToolUse", "AfterTool", "postToolUse", "tool.execute.after"})
READERS = frozenset({"read", "view", "read_file"})
CHANGING = ("surface", "hook", "intent", "tool", "stm", "memory")
"""Sections of a configuration that say what may be said."""
OF_THE_DAEMON = frozenset({"port", "idle_minutes", "capture", "compress"})
"""Keys of `hook` that say nothing of it: where the daemon listens, and what else it does."""
MAX_SAID = 3
MAX_PREVIEW_CHARS = 300
LOCK_SECONDS = 0.05
SEEN_SECONDS = 604_800.0


def answer(home: str, host: str, name: str, event: bytes, until: float) -> bytes:
    """What to say, in the host's shape; empty when nothing is plain, or there is no time."""
    path = os.path.join(home, "memory.db")
    if not (name in PROMPTS or name in TOOLS) or not os.path.isfile(path) or _changed(home):
        return b""
    payload = json.loads(event)
    if not isinstance(payload, dict) or not (name in PROMPTS or _reads(payload)):
        return b""
    if _paused(home, _session(payload)):
        leave(home, _decision((), payload, name, "paused"))
        return b""
    uri = f"file:{path.replace('%', '%25').replace('?', '%3f').replace('#', '%23')}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=LOCK_SECONDS)) as db:
        db.set_progress_handler(lambda: time.monotonic() > until, 1_000)
        bears = by_words if name in PROMPTS else about_file
        found = bears(db, payload)[:MAX_SAID]
        said = [memory for memory in _read(db, found) if memory["id"] not in _superseded(db, found)]
    if time.monotonic() > until:
        return b""
    fresh = _noted(home, said, payload, name) if said else []
    outcome = "surfaced" if fresh else "repeated" if said else "no_candidates"
    leave(home, _decision(fresh, payload, name, outcome))
    if not fresh:
        return b""
    return json.dumps(_shaped(host, name, _framed(fresh))).encode()


def _reads(payload: Payload) -> bool:
    """Does a tool read a file? Nothing else of tools is looked at here."""
    tool = payload.get("tool_name") or payload.get("toolName")
    return isinstance(tool, str) and tool.lower() in READERS


def _read(db: sqlite3.Connection, found: Sequence[Sure]) -> list[dict[str, object]]:
    """The memories with these numbers that may be said unasked."""
    said: list[dict[str, object]] = []
    for n, confidence in found:
        row = db.execute(
            "SELECT id, text, content_hash, trust FROM memory WHERE n = ? AND NOT pinned "
            "AND trust IN ('user', 'imported', 'agent') "
            "AND NOT EXISTS (SELECT 1 FROM feedback f WHERE f.memory = memory.id "
            "AND f.rating IN ('not_relevant', 'already_known') AND NOT f.forgotten) "
            "AND (expires_at IS NULL OR expires_at > ?)",
            (n, time.time()),
        ).fetchone()
        if row and isinstance(row[1], str):
            keys = ("id", "text", "hash", "trust")
            said.append(dict(zip(keys, row, strict=True)) | {"confidence": confidence})
    return said


def _superseded(db: sqlite3.Connection, found: Sequence[Sure]) -> set[object]:
    """Ids of those of which there is a newer one."""
    marks = ",".join("?" * len(found))
    rows = db.execute(
        f"SELECT m.id FROM memory m JOIN memory s ON s.supersedes = m.id WHERE m.n IN ({marks})",
        [n for n, _ in found],
    )
    return {row[0] for row in rows}


def _noted(
    home: str, said: list[dict[str, object]], payload: Payload, name: str
) -> list[dict[str, object]]:
    """Those that were not said before, written down as said; none where that cannot be done."""
    path = os.path.join(home, "ledger.db")
    if not os.path.isfile(path):
        return []
    now = time.time()
    with closing(sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        fresh = [memory for memory in said if not _was_said(db, memory, now)]
        surfacing = "s_" + os.urandom(6).hex()
        fresh = [memory | {"surfacing": surfacing} for memory in fresh]
        session = _session(payload).encode("utf-8", "replace")
        rows = [("seen", f"{memory['id']}:{memory['hash']}", session) for memory in fresh]
        decision = json.dumps(_decision(fresh, payload, name, "surfaced")).encode()
        rows += [("decision", surfacing, decision)] if fresh else []
        db.executemany(
            "INSERT OR REPLACE INTO shelf (tenant, kind, key, value, created_at, expires_at) "
            "VALUES ('default', ?, ?, ?, ?, ?)",
            [(*row, now, now + SEEN_SECONDS) for row in rows],
        )
        db.execute("COMMIT")
    return fresh


def _was_said(db: sqlite3.Connection, memory: Mapping[str, object], now: float) -> bool:
    key = f"{memory['id']}:{memory['hash']}"
    looked = "SELECT 1 FROM shelf WHERE tenant = 'default' AND kind = 'seen' AND key = ? AND "
    return db.execute(looked + "expires_at > ?", (key, now)).fetchone() is not None


def _decision(
    said: Sequence[Mapping[str, object]], payload: Payload, name: str, outcome: str
) -> dict[str, object]:
    """For `explain`, as the journal writes it, without the text of the query."""
    return {
        "id": said[0]["surfacing"] if said else "k_" + os.urandom(6).hex(),
        "at": time.time(),
        "door": "prompt" if name in PROMPTS else "tool",
        "tool": "Read" if name in TOOLS else None,
        "session": _session(payload),
        "trace_id": "",
        "outcome": outcome,
        "detail": "before the daemon ran",
        "late": False,
        "confidence": max([memory["confidence"] for memory in said], default=0.0),  # type: ignore[type-var]
        "signals": {},
        "intent": ["none", 0.0, "keyword"],
        "memories": [[memory["id"], memory["confidence"]] for memory in said],
        "evidence": {str(memory["id"]): {} for memory in said},
        "held_back": [],
        "took_ms": 0.0,
    }


def _framed(said: Sequence[Mapping[str, object]]) -> str:
    """The block that the daemon would say."""
    lines = [f'<{TAG} id="{said[0]["surfacing"]}">', REMINDER]
    for memory in said:
        text = harmless_line(str(memory["text"]))
        shown = text if len(text) <= MAX_PREVIEW_CHARS else text[: MAX_PREVIEW_CHARS - 1] + "…"
        label = "(written by an agent) " if memory["trust"] == "agent" else ""
        lines.append(f"- [upwell://memory/{_quoted(str(memory['id']))}] {label}{shown}")
    return "\n".join([*lines, f"</{TAG}>"])


def _shaped(host: str, name: str, text: str) -> dict[str, object]:
    """As `hook/events` shape it."""
    if host == "cursor":
        return {"additional_context": text}
    if host == "copilot":
        return {"additionalContext": text}
    if host == "opencode":
        return {"text": text}
    return {"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}}


def _quoted(memory_id: str) -> str:
    plain = memory_id.replace("-", "").replace("_", "")
    if plain.isascii() and plain.isalnum():
        return memory_id
    from urllib.parse import quote

    return quote(memory_id.encode("utf-8", "replace"), safe=":@.~-_")


def _session(payload: Payload) -> str:
    for key in ("session_id", "conversation_id", "sessionId", "sessionID"):
        value = payload.get(key)
        if isinstance(value, str) and value:
            return value[:200]
    return ""


def _paused(home: str, session: str) -> bool:
    try:
        with open(os.path.join(home, "paused"), encoding="utf-8", errors="replace") as file:
            lines = file.read().split("\n")
    except OSError:
        return False
    return "*" in lines or session in lines


def _changed(home: str) -> bool:
    """Does the configuration, or a lexicon, say anything about what may be said? Then the daemon
    decides."""
    for name in os.environ:
        if name.startswith("UPWELL_") and "__" in name and not name.endswith("_MS"):
            return True
    if os.path.lexists(os.path.join(home, "lexicon.toml")):
        return True
    path = os.path.join(home, "config.toml")
    if not os.path.isfile(path):
        return os.path.lexists(path)
    with open(path, "rb") as file:
        text = file.read()
    if b"\\" not in text and not any(name.encode() in text for name in CHANGING):
        return False
    return _changing(text)


def _changing(text: bytes) -> bool:
    """Is such a section in it, for all tools or for those of a server? It is when nobody can tell.
    Reading it so takes 10 ms, so it is only done where one of the words stands."""
    import tomllib

    try:
        said = tomllib.loads(text.decode())
        servers = said.get("server", {}).values()
        tables = [said, *(server for server in servers if isinstance(server, dict))]
    except (ValueError, RecursionError, AttributeError):
        return True
    hook = said.get("hook")
    if isinstance(hook, dict) and hook.keys() <= OF_THE_DAEMON:
        del said["hook"]
    return any(name in table for table in tables for name in CHANGING)
