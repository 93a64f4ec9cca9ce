"""Events of a session, for the tests of this package."""

from typing import Any

from upwell.episodes.events import Kind, SessionEvent

ROOT = "/p"


def call(
    tool: str, out: str = "", *, i: int = 0, failed: bool = False, session: str = "s", **args: Any
) -> SessionEvent:
    """A call in the folder `ROOT`; its time in seconds equals its index in the session."""
    return SessionEvent(
        session=session,
        i=i,
        t=float(i),
        kind=Kind.TOOL,
        tool=tool,
        args=args,
        out=out,
        failed=failed,
        cwd=ROOT,
    )


def shell(
    command: str, out: str = "", *, i: int = 0, failed: bool = False, session: str = "s"
) -> SessionEvent:
    return call("Bash", out, i=i, failed=failed, session=session, command=command)


def prompt(text: str, *, i: int = 0, session: str = "s") -> SessionEvent:
    return SessionEvent(session=session, i=i, t=float(i), kind=Kind.PROMPT, text=text, cwd=ROOT)
