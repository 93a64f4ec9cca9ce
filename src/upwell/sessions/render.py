"""Past sessions as text and as JSON."""

import os
from typing import Any

from upwell.ground.text.format import iso
from upwell.sessions.answer import Answer, FileState
from upwell.surface.render import harmless, harmless_line, preview

QUESTION_CHARS, CONCLUSION_CHARS = 240, 700
GONE = "the transcript is gone; this is an excerpt"


def lines_of(answer: Answer, question: str) -> list[str]:
    """A session as a few lines: date and place, question, conclusion, the conclusion at the end of
    the session, commands that worked, and changed files."""
    rows = [
        ("asked", preview(answer.question, [question], QUESTION_CHARS)),
        ("concluded", preview(answer.conclusion, [question], CONCLUSION_CHARS)),
        ("finally", preview(answer.closing, [question], CONCLUSION_CHARS)),
        *(("worked", harmless_line(run.command)) for run in answer.runs),
        *(("changed", harmless_line(file.text)) for file in answer.files),
        *([("note", GONE)] if answer.is_excerpt else []),
    ]
    return [heading(answer), *(f"  {name:<10} {text}" for name, text in rows if text)]


def heading(answer: Answer) -> str:
    """When and where the session ran, and the turn's locator."""
    session = answer.match.session
    when = (iso(answer.match.turn.at) or "")[:16].replace("T", " ")
    parts = (when, session.host, os.path.basename(session.project), answer.match.locator)
    return harmless_line(" · ".join(filter(None, parts)))


def page_of(answer: Answer) -> str:
    """A whole turn as text, with everything that the agent wrote."""
    remarks = answer.remarks or (answer.conclusion,)
    parts = [heading(answer), "", "## Question", answer.question, "", "## Answer", *remarks]
    if answer.runs:
        parts += ["", "## Commands that worked", *(run.command for run in answer.runs)]
    if answer.files:
        parts += ["", "## Files changed", *(file.text for file in answer.files)]
    if answer.is_excerpt:
        parts += ["", f"({GONE})"]
    return harmless("\n".join(parts))


def described(answer: Answer) -> dict[str, Any]:
    """A session as JSON."""
    session, turn = answer.match.session, answer.match.turn
    return {
        "locator": answer.match.locator,
        "score": round(answer.match.score, 4),
        "at": iso(turn.at),
        "host": session.host,
        "project": session.project or None,
        "session": session.name,
        "turn": turn.number,
        "transcript": session.path,
        "question": answer.question,
        "conclusion": answer.conclusion,
        "closing": answer.closing,
        "commands": [run.command for run in answer.runs],
        "files": [_file(file) for file in answer.files],
        "is_excerpt": answer.is_excerpt,
    }


def _file(file: FileState) -> dict[str, Any]:
    return {"path": file.path, "state": file.state or None, "commits": list(file.commits)}
