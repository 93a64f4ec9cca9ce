"""The pause file of `upwell off`. It is read before every call."""

from pathlib import Path

from upwell.ground.files import Locking, exclusively, file_exists, writing
from upwell.ground.host_sessions import outermost
from upwell.ground.types.rpc import Ping

EVERYBODY = "*"


class Pause:
    """The paused sessions, one a line in the file at `path`; `*` pauses all. `locking` holds the
    lock under which the file changes."""

    def __init__(self, path: Path, locking: Locking = exclusively) -> None:
        self._path = path
        self._locking = locking

    def holds(self, session: str) -> bool:
        """Tell whether this session, or the session of its parent agent, is paused now."""
        paused = self._read()
        named = {session, outermost(session)} - {""}
        return EVERYBODY in paused or not paused.isdisjoint(named)

    def anybody(self) -> bool:
        """Tell whether any session is paused."""
        return bool(self._read())

    def begin(self, session: str | None) -> None:
        """Pause a session, or all sessions for None."""
        with self._locking(self._path):
            self._write(self._read() | {session or EVERYBODY})

    def end(self, session: str | None) -> None:
        """End the pause of a session, or every pause for None."""
        with self._locking(self._path):
            self._write(self._read() - {session} if session else set())

    def ping(self) -> Ping:
        paused = self.anybody()
        return Ping(ok=True, detail="paused: `upwell on` resumes" if paused else "not paused")

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
                self._path.write_text("\n".join(sorted(paused)) + "\n", encoding="utf-8")
            else:
                self._path.unlink(missing_ok=True)
