"""Past sessions as text for people and agents, and as JSON."""

import os
from typing import Any

from upwell.ground.text.format import iso
from upwell.sessions.answer import FileState, Told
from upwell.surface.render import harmless, harmless_line, preview

QUESTION_CHARS, CONCLUSION_CHARS = 240, 700
GONE = "the transcript is gone; this is an excerpt"


def lines_of(told: Told, question: str) -> list[str]:
    """A session as a few lines: where and when, then what was asked, concluded, run and changed."""
    rows = [
        ("asked", preview(told.question, [question], QUESTION_CHARS)),
        ("concluded", preview(told.conclusion, [question], CONCLUSION_CHARS)),
        *(("worked", harmless_line(run.command)) for run in told.runs),
        *(("changed", harmless_line(file.text)) for file in told.files),
        *([("note", GONE)] if told.is_excerpt else []),
    ]
    return [heading(told), *(f"  {name:<10} {text}" for name, text in rows if text)]


def heading(told: Told) -> str:
    """When and where the session ran, and the turn's locator."""
    session = told.found.session
    when = (iso(told.found.turn.at) or "")[:16].replace("T", " ")
    parts = (when, session.host, os.path.basename(session.project), told.found.locator)
    return harmless_line(" · ".join(filter(None, parts)))


def page_of(told: Told) -> str:
    """A whole turn: the question, everything that the agent wrote, commands and files."""
    remarks = told.whole or (told.conclusion,)
    parts = [heading(told), "", "## Question", told.question, "", "## Answer", *remarks]
    if told.runs:
        parts += ["", "## Commands that worked", *(run.command for run in told.runs)]
    if told.files:
        parts += ["", "## Files changed", *(file.text for file in told.files)]
    if told.is_excerpt:
        parts += ["", f"({GONE})"]
    return harmless("\n".join(parts))


def described(told: Told) -> dict[str, Any]:
    """A session as JSON."""
    session, turn = told.found.session, told.found.turn
    return {
        "locator": told.found.locator,
        "score": round(told.found.score, 4),
        "at": iso(turn.at),
        "host": session.host,
        "project": session.project or None,
        "session": session.name,
        "turn": turn.number,
        "transcript": session.path,
        "question": told.question,
        "conclusion": told.conclusion,
        "commands": [run.command for run in told.runs],
        "files": [_file(file) for file in told.files],
        "is_excerpt": told.is_excerpt,
    }


def _file(file: FileState) -> dict[str, Any]:
    return {"path": file.path, "state": file.state or None, "commits": list(file.commits)}
