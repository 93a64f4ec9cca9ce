"""Gemini CLI: `~/.gemini/tmp/PROJECT/chats/session-*.json`; `.jsonl` since 0.39.

In both forms a session is a list of messages, which contain calls and their results. In a `.jsonl`
file, a message is repeated whenever it grows, `$rewindTo` removes a message and all later ones, and
`$set` changes fields of the session.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from upwell.episodes.events import Event
from upwell.replay.transcripts.base import (
    Draft,
    Format,
    Tally,
    Unreadable,
    array,
    closed,
    document,
    folder,
    moment,
    records,
    table,
    text,
    text_of,
)

_REFERENCES = "--- Content from referenced files ---"
_COMPLETE = ("success", "error")


def read(path: Path, start: int, tally: Tally) -> Iterator[Event]:
    """The events of a session.

    Raises:
        Unreadable: a `.json` file is not a Gemini CLI session, or is too large.
    """
    return closed(_events(path, tally))


def _events(path: Path, tally: Tally) -> Iterator[Event]:
    session, messages = (
        _from_lines(path, tally) if path.suffix == ".jsonl" else _from_document(path)
    )
    if session.get("kind") == "subagent":
        return
    name = text(session.get("sessionId")) or path.stem
    draft = Draft(name, "gemini", tally, _folder(path, session))
    for message in map(table, messages):
        at = moment(message.get("timestamp"))
        if message.get("type") == "user":
            prompt = text_of(message.get("displayContent") or message.get("content"))
            yield from draft.prompt(prompt.split(_REFERENCES)[0], at)
        elif message.get("type") == "gemini":
            yield from draft.say(text_of(message.get("content")), at)
            for call in map(table, array(message.get("toolCalls"))):
                yield from _called(draft, call, at)


def _called(draft: Draft, call: Mapping[str, Any], at: float) -> Iterator[Event]:
    status = call.get("status")
    if status not in _COMPLETE:
        return
    responses = [
        table(table(table(part).get("functionResponse")).get("response"))
        for part in array(call.get("result"))
    ]
    out = "\n".join(filter(None, map(text_of, responses))) or text(call.get("resultDisplay"))
    yield draft.tool(
        call.get("name"),
        call.get("args"),
        out,
        failed=status == "error",
        at=moment(call.get("timestamp")) or at,
    )


def _from_document(path: Path) -> tuple[Mapping[str, Any], Iterable[Any]]:
    session = document(path)
    if not isinstance(session.get("messages"), list):
        raise Unreadable("it contains no messages")
    return session, session["messages"]


def _from_lines(path: Path, tally: Tally) -> tuple[Mapping[str, Any], Iterable[Any]]:
    session: dict[str, Any] = {}
    messages: dict[str, Mapping[str, Any]] = {}
    for _, record in records(path, 0, tally):
        rewound = record.get("$rewindTo")
        if isinstance(rewound, str):
            names = list(messages)
            first = names.index(rewound) if rewound in messages else 0
            for name in names[first:]:
                del messages[name]
        elif isinstance(record.get("id"), str):
            messages[record["id"]] = record
        else:
            session |= table(record.get("$set")) or record
    return session, array(session.get("messages")) or messages.values()


def _folder(path: Path, session: Mapping[str, Any]) -> str | None:
    """The session's folder, which newer versions record beside the chats."""
    try:
        root = (path.parent.parent / ".project_root").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        root = ""
    return folder(root) or next(filter(None, map(folder, array(session.get("directories")))), None)


def _recognises(path: Path, head: bytes) -> bool:
    if path.suffix not in (".json", ".jsonl") or b'"sessionId"' not in head:
        return False
    return b'"projectHash"' in head or path.parent.name == "chats"


FORMAT = Format(
    name="gemini",
    recognises=_recognises,
    read=read,
)
