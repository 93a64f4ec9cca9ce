"""Render the templates of the dashboard. All values that are not already HTML are escaped, and most
of their invisible characters are shown as codes."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from upwell.ground.text.format import counted
from upwell.ground.text.invisible import visible
from upwell.web.dashboard.prose import commands, plain, prose, unbroken

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
    """Render the template `templates/NAME.html` with these values."""
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
    """Describe where a memory comes from: a session, a commit, or else its file or address."""
    kind, _, name = source.partition(":")
    if kind == "session":
        return f"session {name[:8]}"
    return f"commit {name[:8]}" if kind == "git" else source


def ago(at: float | None, now: float | None = None) -> str:
    """Describe a past time in a few words."""
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
