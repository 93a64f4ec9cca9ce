"""`upwell off`: a file that says who wants silence. Looked at before every call."""

from pathlib import Path

from upwell.ground.files import is_there, writing
from upwell.ground.sessions import outermost

EVERYBODY = "*"


class Pause:
    """The sessions that are paused, one a line; `*` for all."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def holds(self, session: str) -> bool:
        """Is this session paused now, or the one that it is a subagent of?"""
        paused = self._read()
        named = {session, outermost(session)} - {""}
        return EVERYBODY in paused or not paused.isdisjoint(named)

    def anybody(self) -> bool:
        """Is anybody paused?"""
        return bool(self._read())

    def begin(self, session: str | None) -> None:
        self._write(self._read() | {session or EVERYBODY})

    def end(self, session: str | None) -> None:
        """End the pause of a session, or every pause."""
        self._write(self._read() - {session} if session else set())

    def _read(self) -> set[str]:
        if not is_there(self._path):
            return set()
        try:
            return set(self._path.read_text(encoding="utf-8", errors="replace").split("\n")) - {""}
        except OSError:
            return set()

    def _write(self, paused: set[str]) -> None:
        with writing(self._path):
            if paused:
                self._path.write_text("\n".join(sorted(paused)) + "\n", encoding="utf-8")
            else:
                self._path.unlink(missing_ok=True)
