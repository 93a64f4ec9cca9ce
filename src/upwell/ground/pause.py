"""The pause file, which `upwell off` writes. It is read before every tool call."""

from pathlib import Path

from upwell.ground.errors import UsageError
from upwell.ground.files import exclusively, file_exists, write_atomically, writing
from upwell.ground.host_sessions import outermost
from upwell.ground.text.format import counted
from upwell.ground.types.rpc import Ping

EVERYBODY = "*"


class Pause:
    """The paused sessions, one per line in the file at `path`. A line with `*` pauses all
    sessions."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def holds(self, session: str) -> bool:
        """Return whether this session, or the outermost session that contains it, is paused."""
        paused = self._read()
        named = {session, outermost(session)} - {""}
        return EVERYBODY in paused or not paused.isdisjoint(named)

    def anybody(self) -> bool:
        """Return whether any session is paused."""
        return bool(self._read())

    def described(self) -> str:
        """Say what is paused, in a sentence without a full stop. Returns "" if nothing is."""
        paused = self._read()
        if not paused or EVERYBODY in paused:
            return "everything is paused" if paused else ""
        return f"{counted(len(paused), 'session')} {'is' if len(paused) == 1 else 'are'} paused"

    def begin(self, session: str | None) -> None:
        """Pause a session, or all sessions if `session` is None.

        Raises:
            UsageError: no session can have this name.
            StoreError: the file cannot be locked or written.
        """
        name = EVERYBODY if session is None else _checked(session)
        with exclusively(self._path):
            self._write(self._read() | {name})

    def end(self, session: str | None) -> None:
        """End a session's pause, or every pause if `session` is None.

        Raises:
            UsageError: no session can have this name.
            StoreError: the file cannot be locked or written.
        """
        name = EVERYBODY if session is None else _checked(session)
        with exclusively(self._path):
            self._write(set() if name == EVERYBODY else self._read() - {name})

    def ping(self) -> Ping:
        paused = self.described()
        return Ping(ok=True, detail=f"{paused}: `upwell on` resumes" if paused else "not paused")

    def _read(self) -> set[str]:
        if not file_exists(self._path):
            return set()
        try:
            return set(self._path.read_text(encoding="utf-8", errors="replace").split("\n")) - {""}
        except OSError:
            return set()

    def _write(self, paused: set[str]) -> None:
        with writing(self._path):
            if paused:
                # The write is atomic, because every tool call reads the file without the lock.
                write_atomically(self._path, "\n".join(sorted(paused)) + "\n")
            else:
                self._path.unlink(missing_ok=True)


def _checked(session: str) -> str:
    if not session.isprintable() or session in ("", EVERYBODY):
        raise UsageError(
            f"{session[:60]!a} is not a session", hint="omit --session to mean every session"
        )
    return session
