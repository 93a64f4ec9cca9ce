"""The first event, when no daemon runs yet: a look into the memory with nothing but SQLite.

Loading what surfacing really decides with takes longer than a hook may. So this says only what is
plain: memories that hold most of what a prompt asks, or that are about exactly the file that is
read; a part of what the daemon would say. What was said goes into the ledger, so that nothing is
repeated. Where settings of surfacing were changed it keeps silent, since it does not read them.
"""

import json
import math
import os
import re
import sqlite3
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from upwell.hook.spool import leave
from upwell.memory.everyday import EVERYDAY_WORDS
from upwell.surface.frame import REMINDER, TAG, harmless_line

Payload = Mapping[str, object]
Sure = tuple[int, float]
"""The number of a memory, and how sure it is that it bears on the event."""

PROMPTS = frozenset(
    "UserPromptSubmit BeforeAgent beforeSubmitPrompt chat.message userPromptSubmitted".split()
)
TOOLS = frozenset({"PostToolUse", "AfterTool", "postToolUse", "tool.execute.after"})
READERS = frozenset({"read", "view", "read_file"})
FILE_KEYS = ("file_path", "filePath", "path", "absolute_path", "target_file")
CHANGING = ("surface", "hook", "intent", "tool", "stm", "memory")
"""Sections of a configuration that say what may be said."""
MAX_SAID = 3
MAX_PREVIEW_CHARS = 300
FUNCTION_WORDS = frozenset(
    """
    about after all also and any are because been before being but can could did does doing each
    for from had has have having her here him his how if in into is it its just me more my no not
    now of on once only or other our out over same she should so some such than that the their
    them then there these they this those through to too under until up us very was we were what
    when where which while who why will with would you your al como con cual cuando de del donde
    el en es esta este la las lo los mas mi no nos para pero por que se si sin su un una y an as at
    be by do he i a
    """.split()
)
"""The lexicon that surfacing reads takes as long to load as all the rest of this."""
MIN_WORDS = 3
"""Shorter messages without a question are not looked at (seed 003)."""
MAX_WORDS = 12
MAX_HOLDING = 400
MAX_ABOUT = 8
MAX_FILES = 3
LEAST_MEMORIES = 500
CLEAR = {2: 0.75, 3: 0.6, 4: 0.5}
"""How many telling words a memory must share with a prompt, and what share of the prompt's rarity
they must make up. Set by hand, well inside of what the daemon says."""
LOCK_SECONDS = 0.05
SEEN_SECONDS = 604_800.0
_WORD = re.compile(r"[^\W_]+")
TOKENIZER = "porter unicode61 remove_diacritics 2"


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
        found = _plain(db, name, payload)[:MAX_SAID]
        said = [memory for memory in _read(db, found) if memory["id"] not in _superseded(db, found)]
    if time.monotonic() > until:
        return b""
    fresh = _noted(home, said, payload, name) if said else []
    outcome = "surfaced" if fresh else "repeated" if said else "no_candidates"
    leave(home, _decision(fresh, payload, name, outcome))
    if not fresh:
        return b""
    return json.dumps(_shaped(host, name, _framed(fresh))).encode()


def _plain(db: sqlite3.Connection, name: str, payload: Payload) -> list[Sure]:
    """Numbers of the memories that plainly bear on the event, with how sure that is."""
    scopes = _scopes(db, payload)
    if not scopes:
        return []
    if name in PROMPTS:
        prompt = payload.get("prompt")
        return _by_words(db, prompt, scopes) if isinstance(prompt, str) else []
    return _by_file(db, payload, scopes)


def _by_words(db: sqlite3.Connection, prompt: str, scopes: list[int]) -> list[Sure]:
    asked = [_folded(word) for word in _WORD.findall(prompt[:500])]
    if prompt.lstrip().startswith("/") or (len(asked) < MIN_WORDS and "?" not in prompt):
        return []
    telling = [word for word in dict.fromkeys(asked) if len(word) > 1]
    telling = [word for word in telling if word not in FUNCTION_WORDS][:MAX_WORDS]
    by_stem = {stem: word for word, stem in _stems(telling)}
    rarity, common = _rarity(db, list(by_stem), scopes)
    mass = sum(rarity.values())
    matched: dict[int, list[float]] = {}
    for stem, word in by_stem.items():
        if stem in common or word in EVERYDAY_WORDS:
            continue
        for n in _holding(db, word, scopes):
            matched.setdefault(n, []).append(rarity[stem])
    sure = [
        (n, sum(parts) / mass)
        for n, parts in matched.items()
        if sum(parts) >= CLEAR.get(min(len(parts), max(CLEAR)), 2.0) * mass
    ]
    return sorted(sure, key=lambda one: (-one[1], -one[0]))


def _folded(word: str) -> str:
    """As the index folds: lower case, without accents."""
    if word.isascii():
        return word.lower()
    decomposed = unicodedata.normalize("NFKD", word.casefold())
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def _rarity(
    db: sqlite3.Connection, stems: list[str], scopes: list[int]
) -> tuple[dict[str, float], set[str]]:
    """The idf of each stem in these scopes, and those that too many memories hold."""
    marks, places = ",".join("?" * len(stems)), ",".join("?" * len(scopes))
    count = db.execute(f"SELECT sum(memories) FROM scope WHERE no IN ({places})", scopes).fetchone()
    size = max(LEAST_MEMORIES, count[0] or 0)
    rows = db.execute(
        f"SELECT stem, sum(memories) FROM term WHERE stem IN ({marks}) AND scope IN ({places}) "
        "GROUP BY stem",
        (*stems, *scopes),
    )
    held = dict.fromkeys(stems, 0) | {stem: int(number) for stem, number in rows}
    rarity = {stem: math.log(1 + (size - n + 0.5) / (n + 0.5)) for stem, n in held.items()}
    return rarity, {stem for stem, n in held.items() if n > MAX_HOLDING}


def _stems(found: Sequence[str]) -> list[tuple[str, str]]:
    """Each word with its stem, by the index's own tokenizer."""
    if not found:
        return []
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(f"CREATE VIRTUAL TABLE scratch USING fts5 (t, tokenize = '{TOKENIZER}')")
        db.execute("CREATE VIRTUAL TABLE seen USING fts5vocab (scratch, instance)")
        db.execute("INSERT INTO scratch VALUES (?)", (" ".join(found),))
        stems = [row[0] for row in db.execute("SELECT term FROM seen ORDER BY offset")]
    return list(zip(found, stems, strict=True)) if len(stems) == len(found) else []


def _holding(db: sqlite3.Connection, word: str, scopes: list[int]) -> list[int]:
    """The memories that hold a word."""
    query = "SELECT rowid FROM words WHERE words MATCH ? AND rowid >= ? AND rowid < ? LIMIT ?"
    found: list[int] = []
    for low, high in _ranges(scopes):
        found += [row[0] for row in db.execute(query, (f'"{word}"', low, high, MAX_HOLDING))]
    return found


def _by_file(db: sqlite3.Connection, payload: Payload, scopes: list[int]) -> list[Sure]:
    """Memories about exactly the file that is read, and about few others."""
    path = _file(payload)
    root = _root(_folder(payload))
    known = path.removeprefix(root + "/").lower() if root else ""
    if not known or known.startswith("/") or "/" not in known:
        return []
    marks = ",".join("?" * len(scopes))
    rows = db.execute(
        "SELECT a.n FROM anchor k JOIN about a ON a.anchor = k.no "
        f"WHERE k.key = ? AND k.scope IN ({marks}) AND k.memories <= ? ORDER BY a.n DESC",
        (f"f:{known}", *scopes, MAX_ABOUT),
    ).fetchall()
    files = (
        "SELECT count(*) FROM about a JOIN anchor k ON k.no = a.anchor "
        "WHERE a.n = ? AND k.key LIKE 'f:%/%'"
    )
    return [(n, 0.9) for (n,) in rows if db.execute(files, (n,)).fetchone()[0] <= MAX_FILES]


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


def _scopes(db: sqlite3.Connection, payload: Payload) -> list[int]:
    cwd = _folder(payload)
    if not cwd:
        return []
    rows = db.execute(
        "SELECT no FROM scope WHERE tenant = 'default' AND project IN ('', ?)",
        (_root(cwd) or cwd,),
    )
    return sorted(row[0] for row in rows)


def _ranges(scopes: Sequence[int]) -> Iterator[tuple[int, int]]:
    for number in scopes:
        yield number << 34, (number + 1) << 34


def _root(folder: str) -> str:
    """The repository that a folder lies in; "" when it lies in none."""
    while folder and folder != "/":
        if os.path.exists(os.path.join(folder, ".git")):
            return folder
        folder = os.path.dirname(folder)
    return ""


def _folder(payload: Payload) -> str:
    cwd, roots = payload.get("cwd"), payload.get("workspace_roots")
    if not isinstance(cwd, str) and isinstance(roots, list) and roots:
        cwd = roots[0]
    return os.path.normpath(cwd) if isinstance(cwd, str) and cwd.startswith("/") else ""


def _session(payload: Payload) -> str:
    for key in ("session_id", "conversation_id", "sessionId", "sessionID"):
        value = payload.get(key)
        if isinstance(value, str) and value:
            return value[:200]
    return ""


def _file(payload: Payload) -> str:
    args = payload.get("tool_input") or payload.get("toolArgs") or payload.get("args")
    args = json.loads(args) if isinstance(args, str) else args
    if not isinstance(args, dict):
        return ""
    for key in FILE_KEYS:
        value = args.get(key)
        if isinstance(value, str) and value:
            return os.path.normpath(os.path.join(_folder(payload), value))
    return ""


def _paused(home: str, session: str) -> bool:
    try:
        with open(os.path.join(home, "paused"), encoding="utf-8", errors="replace") as file:
            lines = file.read().split("\n")
    except OSError:
        return False
    return "*" in lines or session in lines


def _changed(home: str) -> bool:
    """Does the configuration say anything about what may be said? Then the daemon decides."""
    for name in os.environ:
        if name.startswith("UPWELL_") and "__" in name and not name.endswith("_MS"):
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
    return any(name in table for table in tables for name in CHANGING)
