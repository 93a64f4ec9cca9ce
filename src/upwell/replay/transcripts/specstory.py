"""SpecStory: `.specstory/history/*.md`, the sessions of other hosts as Markdown.

There are two generations of the format. In the newer one every heading has a time
(`_**User (2026-…Z)**_`), and calls are `<tool-use>` blocks. In the older one, a call is a
`<summary>`, a shell code block, or a line such as `Tool use: **grep**` or `Read file: …`. Its times
are estimated from the time in the file's name or at its beginning, or else from when the
file last changed.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from upwell.episodes.events import Event
from upwell.replay.transcripts.base import (
    Draft,
    Format,
    Tally,
    Unreadable,
    between,
    closed,
    folder,
    tool_name,
    without,
)

_HEADING = re.compile(r"_\*\*(User|Assistant|Agent)( - sidechain)?(?: \((.*)\))?\*\*_")
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ _T](\d\d)[:-](\d\d)(?:[:-](\d\d)(?:\.(\d+))?)?")
_SESSION = re.compile(r"<!-- (?:(?!<!-- ).)*?Session ([\w-]{8,}+) ")
_TOOL_START = re.compile(r'<tool-use data-tool-type="[^"]*" data-tool-name="([^"]*)">')
_TOOL_END = re.compile(r"</details>\s*</tool-use>|^</tool-use>")
_SUMMARY = ("<summary>", "</summary>")
_MARKS = re.compile(r"\n(_\*\*|<tool-use|</| {0,3}(?:```|~~~))[^\n]*")
"""The lines that can begin or end a turn or a call, except the first line of a file."""
_FENCES = re.compile(r"\n {0,3}(`{3,}|~{3,})([^\n]*)")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")
_TICKED = re.compile(r"`([^`\n]+)`")
_FAILED = re.compile(
    r"<tool_use_error>|^(?:Error: )?Exit code [1-9]|exited with code [1-9]|^Error:", re.MULTILINE
)
_REFUSED = "The user doesn't want to proceed with this tool use."
_THINKING = ("<think>", "</think>")
_OLD_CALL = re.compile(
    r"^Tool use: \*\*(?P<name>[\w-]+)\*\*[^\n]*$"
    r"|^Read file: (?!undefined$)(?P<read>[^\n]+)$"
    r"|^ *<summary>(?P<summary>(?:Searched codebase|Grep|Listed directory)[^\n]*?)"
    r"</summary>"
    r"|^```(?:bash|sh)\n(?P<command>(?:(?!\n```).)*+)\n```$",
    re.DOTALL | re.MULTILINE,
)
_EDITED = re.compile(
    r"(?:(?:Edit|Write|Create)(?:(?!Edit|Write|Create)[^\n:])*+:|Apply patch for) ([^\n<•]+)"
)
_WRITTEN = re.compile(
    r"(?:^The file|created successfully at:|^Wrote contents to) (/[^\n]+?)(?: has|$)"
)
_OUTPUT = re.compile(r"\s*```\w*\n(.*?)\n?```", re.DOTALL)
_LISTED = re.compile(r"(.*?)</details>", re.DOTALL)
_DETAILS = re.compile(r"</?details>")
_QUOTED = re.compile(r'"(.*?)"')
_MARKED = "Tool use: **"
_TITLE = "** • "
_NOTHING_FOUND = "No matches found"
MAX_TITLE_CHARS = 500
_FILE_TOOLS = frozenset({"Read", "Edit", "Write"})
_FILE_TITLE = re.compile(r"(?:Read|Edit|Write|Create) file: ([^\n<]+)")
_SEARCH_TITLE = re.compile(
    r'(?:Grep(?: search)? for|Searched codebase) "([^"\n]+)"(?: in "([^"\n]+)")?'
)
PROMPT_SECONDS, CALL_SECONDS = 5.0, 8.0
"""The assumed time between events that have no time of their own."""


def read(path: Path, start: int, tally: Tally) -> Iterator[Event]:
    """The events of a session.

    Raises:
        Unreadable: the file is not UTF-8.
    """
    try:
        raw = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 (byte {error.start})") from error
    return closed(_events(path, raw, tally))


def _events(path: Path, raw: str, tally: Tally) -> Iterator[Event]:
    session = _SESSION.search(raw[:1_000])
    draft = Draft(session[1] if session else path.stem, "specstory", tally, _project(path))
    draft.at = _time_in(path.name) or _time_in(raw[:500]) or _modified_at(path)
    marked = _MARKED in raw
    for turn in _turns(raw):
        if turn.sidechain:
            continue
        at = _time_in(turn.stamp) or draft.at + PROMPT_SECONDS
        if turn.speaker == "User":
            yield from draft.prompt(turn.text.strip().removesuffix("---"), at)
        elif _TOOL_START.search(turn.text):
            yield from _new_style(draft, turn.text, at)
        else:
            yield from _old_style(draft, without(turn.text, *_THINKING), at, marked=marked)


class _Turn(Struct, frozen=True):
    """The text below a heading, including calls. `speaker` is the user or the agent."""

    speaker: str
    sidechain: bool
    stamp: str
    text: str


def _turns(raw: str) -> Iterator[_Turn]:
    """The turns in a history. A heading inside a call is part of the tool's result."""
    heading: re.Match[str] | None = None
    start = 0
    call_state = _Inside()
    for mark in _MARKS.finditer(raw):
        line = mark[0][1:]
        is_heading = not call_state.call(line) and mark[1] == "_**"
        match = _HEADING.fullmatch(line.rstrip()) if is_heading else None
        if match is None:
            continue
        if heading is not None:
            yield _turn(heading, raw[start : mark.start()])
        heading, start = match, mark.end()
    if heading is not None:
        yield _turn(heading, raw[start:])


def _turn(heading: re.Match[str], text: str) -> _Turn:
    return _Turn(heading[1], bool(heading[2]), heading[3] or "", text)


class _Inside:
    """Tracks whether the current line is inside a call."""

    def __init__(self) -> None:
        self.is_open = False
        self._fence = ""

    def call(self, line: str) -> bool:
        """Process the next line that matches `_MARKS`. Returns True if it belongs to a call, which
        includes the line that ends the call. Fences close as in CommonMark 0.31, section 4.5.
        """
        if not self.is_open:
            self.is_open = line.startswith("<tool-use") and bool(_TOOL_START.match(line))
            self._fence = ""
            return self.is_open
        fence = _fence(line)
        if self._fence:
            if fence and fence[1].startswith(self._fence) and not fence[2].strip():
                self._fence = ""
        elif fence:
            self._fence = fence[1]
        elif "</" in line and _TOOL_END.search(line):
            self.is_open = False
        return True


def _fence(line: str) -> re.Match[str] | None:
    """Match a fence. Few lines are fences, so a search for their characters comes first."""
    return _FENCE.match(line) if "```" in line or "~~~" in line else None


def _new_style(draft: Draft, words: str, at: float) -> Iterator[Event]:
    offset, call_start = 0, 0
    call_state = _Inside()
    for mark in _MARKS.finditer(words):
        was_open = call_state.is_open
        is_inside = call_state.call(mark[0][1:])
        if is_inside and not was_open:
            call_start = mark.start() + 1
            yield from _spoken(draft, words[offset:call_start], at)
        elif was_open and not call_state.is_open:
            offset = mark.end()
            yield from _called(draft, words[call_start : mark.end()], at)
    if call_state.is_open:
        yield from _called(draft, words[call_start:], at)
    else:
        yield from _spoken(draft, words[offset:], at)


def _spoken(draft: Draft, text: str, at: float) -> Iterator[Event]:
    words = without(text, *_THINKING).strip(" \n-")
    yield from draft.say(words, at)


def _called(draft: Draft, block: str, at: float) -> Iterator[Event]:
    """Parse a call. Its arguments are in the summary or in backticks. Its result is in a fence."""
    start, summary = _TOOL_START.match(block), between(block, *_SUMMARY)
    if start is None:
        return
    body = block.partition(_SUMMARY[1])[2] if summary else block[start.end() :]
    fences = _fences(body)
    before = body.split("```")[0]
    ticked = _TICKED.findall(before) or _TICKED.findall(summary)
    tool = tool_name(start[1])
    out = fences[-1][1] if fences else _listed_in(tool, body)
    if not out.startswith(_REFUSED):
        title = summary.partition(_TITLE)[2][:MAX_TITLE_CHARS]
        args = _titled(tool, title) or _arguments(tool, ticked, fences) or _written(tool, out)
        shell = tool == "Bash" and fences and fences[-1][0] in ("bash", "sh")
        failed = bool(_FAILED.search(out[:2_000]))
        yield draft.tool(start[1], args, "" if shell else out, failed=failed, at=at)


def _titled(tool: str, title: str) -> dict[str, Any]:
    """The arguments in a call's title: `Read file: PATH`, `Grep for "PATTERN" in "PATH"`."""
    if tool in _FILE_TOOLS and (named := _FILE_TITLE.match(title)):
        return {"file_path": named[1].strip()}
    if tool in ("Grep", "Glob") and (search := _SEARCH_TITLE.match(title)):
        return {"pattern": search[1], **({"path": search[2]} if search[2] else {})}
    return {}


def _listed_in(tool: str, body: str) -> str:
    """The result of a search, which some versions write as a table."""
    if tool not in ("Grep", "Glob", "LS"):
        return ""
    return _NOTHING_FOUND if _NOTHING_FOUND in body else _plain(body.partition("</details>")[0])


def _arguments(tool: str, ticked: list[str], fences: list[tuple[str, str]]) -> dict[str, Any]:
    first = ticked[0] if ticked else ""
    if tool in _FILE_TOOLS:
        return {"file_path": first} if first else {}
    if tool == "Bash":
        script = next((text for name, text in fences if name in ("bash", "sh")), "")
        command = script or max(ticked, key=len, default="")
        return {"command": command} if command else {}
    if tool in ("Grep", "Glob"):
        values = ticked[:2]
        paths = [value for value in values if value.startswith(("./", "/"))] if ticked[1:] else []
        pattern = next((value for value in values if value not in paths), first)
        return {"pattern": pattern, **({"path": paths[0]} if paths else {})} if pattern else {}
    name = "url" if tool == "WebFetch" else "query"
    return {name: first} if first else {}


def _written(tool: str, out: str) -> dict[str, Any]:
    """The changed file, taken from the result of an edit whose call does not name it."""
    match = _WRITTEN.search(out) if tool in ("Edit", "Write") else None
    return {"file_path": match[1]} if match else {}


def _fences(text: str) -> list[tuple[str, str]]:
    fences: list[tuple[str, str]] = []
    body = f"\n{text}"
    mark, language, start = "", "", 0
    for fence in _FENCES.finditer(body):
        if not mark:
            mark, language, start = fence[1], fence[2].strip(), fence.end() + 1
        elif fence[1].startswith(mark) and not fence[2].strip():
            fences.append((language, body[start : fence.start()]))
            mark = ""
    if mark:
        fences.append((language, body[start:]))
    return fences


def _old_style(draft: Draft, words: str, at: float, *, marked: bool) -> Iterator[Event]:
    calls = [call for call in _OLD_CALL.finditer(words) if _ran(call, words, marked=marked)]
    offset = 0
    for number, call in enumerate(calls):
        yield from draft.say(_plain(words[offset : call.start()]), at)
        end = calls[number + 1].start() if number + 1 < len(calls) else len(words)
        out, offset = _answer(call, words, end)
        tool_and_args = _old_call(call, words[call.end() : end])
        if tool_and_args is not None:
            at = draft.at + CALL_SECONDS
            failed = bool(_FAILED.search(out[:2_000]))
            yield draft.tool(*tool_and_args, out, failed=failed, at=at)
    yield from draft.say(_plain(words[offset:]), at)


def _plain(words: str) -> str:
    return _DETAILS.sub("", words).strip(" \n-")


def _ran(call: re.Match[str], words: str, *, marked: bool) -> bool:
    """True if the agent ran the command, False if it only showed it. In a file that marks tool uses
    (`marked`), a command ran if the mark of the terminal tool precedes it. In other files, a
    command ran if its output follows it."""
    if call["command"] is None:
        return True
    if marked:
        return (
            words[max(0, call.start() - 80) : call.start()].rstrip().endswith("run_terminal_cmd**")
        )
    return bool(re.match(r"\s*\n```\w*\n", words[call.end() : call.end() + 40]))


def _answer(call: re.Match[str], words: str, end: int) -> tuple[str, int]:
    """A tool's result and where it ends: the fence after a command, or the table after a search.
    The history does not contain the content of files that were read."""
    pattern = _OUTPUT if call["command"] else _LISTED if call["summary"] else None
    match = pattern.match(words, call.end(), end) if pattern else None
    return (match[1].strip(), match.end()) if match else ("", call.end())


def _old_call(call: re.Match[str], rest: str) -> tuple[str, dict[str, Any]] | None:
    if call["read"]:
        return "Read", {"file_path": call["read"].strip()}
    if call["command"]:
        return "Bash", {"command": call["command"].strip()}
    if call["summary"]:
        return _of_summary(call["summary"])
    edit = _EDITED.search(rest[:2_000])
    if tool_name(call["name"]) in ("Edit", "Write") and edit:
        return "Edit", {"file_path": edit[1].strip()}
    return None


def _of_summary(summary: str) -> tuple[str, dict[str, Any]] | None:
    if summary.startswith("Listed directory"):
        path = summary.removeprefix("Listed directory").split("•")[0].strip()
        return None if path == "undefined" else ("LS", {"path": path})
    pattern = _QUOTED.search(summary)
    return ("Grep", {"pattern": pattern[1]}) if pattern else None


def _time_in(words: str) -> float:
    """The first time in a text, taken as UTC, in seconds since the epoch; 0 for none."""
    stamp = _STAMP.search(words)
    if stamp is None:
        return 0.0
    day, hour, minute, second, fraction = stamp.groups()
    try:
        at = datetime.fromisoformat(f"{day}T{hour}:{minute}:{second or '00'}").replace(tzinfo=UTC)
    except ValueError:
        return 0.0
    return max(0.0, at.timestamp() + float(f"0.{fraction or 0}"))


def _modified_at(path: Path) -> float:
    return path.stat().st_mtime


def _project(path: Path) -> str | None:
    parts = path.absolute().parts
    if parts[-3:-1] != (".specstory", "history"):
        return None
    return folder(str(Path(*parts[:-3])))


def _recognises(path: Path, head: bytes) -> bool:
    return path.suffix == ".md" and head.lstrip().startswith(b"<!-- Generated by SpecStory")


FORMAT = Format(
    name="specstory",
    recognises=_recognises,
    read=read,
)
