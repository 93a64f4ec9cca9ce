"""Render the templates of the dashboard. All values that are not already HTML are escaped, and most
of their invisible characters are shown as codes.

Markdown from agents and users becomes safe HTML: each piece of the text is escaped before it is put
between our own tags, and addresses are shown as text.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from upwell.ground.text.safe import visible
from upwell.ground.text.words import counted

_FENCE = re.compile(r"^ {0,9}(?:```|~~~)")
_HEADING = re.compile(r"^ {0,3}#{1,6} {1,9}(.+)$")
_BULLET = re.compile(r"^( {0,40})[-*+] (?=.)")
_QUOTE = re.compile(r"^ {0,3}> ?")
_BACKTICKS = re.compile(r"`([^`]++)`")
_INLINE = re.compile(
    r"`([^`\n]{1,2000}+)`"
    # A path pattern such as src/**/test is not bold text.
    r"|(?<![\w/*])\*\*(?=[^\s*/])([^*\n]{1,500}+)(?<=\S)\*\*(?![\w/*])"
    r"|!?\[([^\[\]\n]{1,300}+)\]\(([^()\s]{1,500}+)\)"
)


def prose(text: str) -> Markup:
    """The escaped text without Markdown's most common markup, with elements for code and bold
    text."""
    blocks: list[Markup] = []
    fenced: list[str] | None = None
    for line in visible(text).split("\n"):
        if _FENCE.match(line):
            if fenced is not None:
                blocks.append(_code(fenced))
            fenced = [] if fenced is None else None
        elif fenced is not None:
            fenced.append(line)
        elif line.strip() or (blocks and blocks[-1]):
            blocks.append(_line(line) if line.strip() else Markup(""))
    if fenced:
        blocks.append(_code(fenced))
    return Markup("\n").join(blocks)


def plain(text: str) -> str:
    """The text without Markdown's most common markup, on one line and not escaped, for titles."""
    return prose(text).striptags()


def unbroken(command: str) -> Markup:
    """Return the escaped command as HTML that browsers wrap only between words. Without this, they
    also break a word such as `--apply` after its hyphens."""
    words = visible(command).split(" ")
    return Markup(" ").join(Markup('<span class="word">{}</span>').format(word) for word in words)


def commands(text: str) -> Markup:
    pieces = _BACKTICKS.split(visible(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(unbroken(piece)) if number % 2 else escape(piece)
        for number, piece in enumerate(pieces)
    )


def _code(lines: list[str]) -> Markup:
    return Markup("<code>{}</code>").format("\n".join(lines))


def _line(line: str) -> Markup:
    line = _QUOTE.sub("", line)
    if heading := _HEADING.match(line):
        return Markup("<b>{}</b>").format(heading[1].strip(" #").replace("**", "").replace("`", ""))
    return _spans(_BULLET.sub(r"\1• ", line))


def _spans(line: str) -> Markup:
    pieces: list[Markup] = []
    end = 0
    for match in _INLINE.finditer(line):
        pieces += [escape(line[end : match.start()]), _inline(match)]
        end = match.end()
    return Markup("").join([*pieces, escape(line[end:])])


def _inline(match: re.Match[str]) -> Markup:
    code, bold, label, address = match.groups()
    if code is not None:
        return Markup("<code>{}</code>").format(code)
    if bold is not None:
        # Bold text contains no asterisk, so the recursion ends after one level.
        return Markup("<b>{}</b>").format(_spans(bold))
    return escape(f"{label.replace('`', '')} ({address})")


FOLDER = Path(str(files("upwell.web.dashboard")))
LABELS: Mapping[str, str] = {
    "user": "you",
    "agent": "an agent",
    "tool": "upwell",
    "capture": "a session",
    "lesson": "a session",
    "state": "a session",
    "import": "an import",
    "imported": "an import",
    "cli": "the command line",
    "dashboard": "this dashboard",
    "episode": "from a session",
    "learned": "from a session",
    "doc": "document",
    "ttl_store": "short-lived data",
    "ltm": "memory server",
    "meaning": "search by meaning",
}
"""The words for what upwell calls by other names. Names that are not here are the user's words."""
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def rendered(name: str, values: Mapping[str, Any]) -> str:
    return _environment().get_template(f"{name}.html").render(values)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
        auto_reload=False,
    )
    environment.filters |= {
        "counted": counted,
        "number": lambda value: f"{value:,.0f}",
        "percent": lambda share: "–" if share is None else f"{100 * share:.0f} %",
        "ago": ago,
        "day": lambda at: _utc(at).strftime("%Y-%m-%d") if at else "",
        "clock": lambda at: _utc(at).strftime("%H:%M:%S") if at else "",
        "moment": moment,
        "iso": lambda at: _utc(at).isoformat(timespec="seconds") if at else "",
        "prose": lambda text: prose(text or ""),
        "plain": lambda text: plain(text or ""),
        "unbroken": unbroken,
        "commands": commands,
        "label": lambda name: LABELS.get(name, name),
        "origin": origin,
        "base": lambda path: (path or "").rstrip("/").rpartition("/")[2],
    }
    return environment


def origin(source: str) -> str:
    kind, _, name = source.partition(":")
    if kind == "session":
        return f"session {name[:8]}"
    return f"commit {name[:8]}" if kind == "git" else source


def ago(at: float | None, now: float | None = None) -> str:
    if not at:
        return ""
    moment = datetime.now(UTC).timestamp() if now is None else now
    seconds = max(0.0, moment - at)
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name} ago"
    return "just now"


def moment(at: float | None, now: float | None = None) -> str:
    """Return the time of an event, with the date before it if the event was not today."""
    if not at:
        return ""
    today = datetime.now(UTC).date() if now is None else _utc(now).date()
    return _utc(at).strftime("%H:%M:%S" if _utc(at).date() == today else "%Y-%m-%d %H:%M")


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _shown(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
