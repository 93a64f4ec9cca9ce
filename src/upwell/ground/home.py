"""The home: the folder that contains all of upwell's files.

All entry points find the home through this module, so that they share their data.
"""

import os
import stat
import sys
from pathlib import Path

from msgspec import Struct

from upwell.ground.errors import StoreUnwritable

LAUNCHER = "upwell-hook"
"""The script in the home that agents' hooks run."""
MAX_PATH_BYTES = 400
"""The maximum length of the home's path. SQLite limits file paths to 512 bytes, and backups
have longer paths than the home.
"""


def default_home() -> Path:
    """Return `UPWELL_HOME`, or the platform's data folder for upwell."""
    variable = os.environ.get("UPWELL_HOME")
    if variable:
        return Path(os.path.expanduser(variable)).absolute()
    if sys.platform.startswith("linux") and (base := os.environ.get("XDG_DATA_HOME")):
        return Path(base).absolute() / "upwell"
    return usual_home()


def usual_home() -> Path:
    """Return the home that is used when no environment variable is set. Programs that run in
    another environment, such as agents, find only this home.
    """
    if sys.platform.startswith("linux"):
        return Path(os.path.expanduser("~/.local/share/upwell")).absolute()
    from platformdirs import user_data_path

    return user_data_path("upwell", appauthor=False)


class Inside:
    """The path of a file or folder in a home."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, home: "Home", owner: type["Home"]) -> Path:
        return home.root / self._name


class Home(Struct, frozen=True):
    """The files of one installation under `root`, which normally has mode 0700 (most files have
    0600)."""

    root: Path

    config_file = Inside("config.toml")
    lexicon_file = Inside("lexicon.toml")
    memory_db = Inside("memory.db")
    index_db = Inside("index.db")
    ledger_db = Inside("ledger.db")
    sessions_db = Inside("sessions.db")
    notes_file = Inside("stm.json")
    cleared_notes_file = Inside("stm.trash.json")
    origins_file = Inside("stm.origins.json")
    folder_file = Inside("folder.json")
    backups = Inside("backups")
    logs = Inside("log")
    secret_file = Inside("secret")
    export_key_file = Inside("export-key")
    offer_file = Inside("offer.json")
    lists_file = Inside("tools.json")
    token_file = Inside("token")
    tokens_file = Inside("tokens.json")
    logins_file = Inside("logins.json")
    hooks_file = Inside("hooks.json")
    hook_launcher = Inside(LAUNCHER)
    server_launcher = Inside("bin/upwell")
    clients_file = Inside("clients.json")
    wrapped_file = Inside("wrapped.json")
    inbox_file = Inside("inbox.json")
    setup_file = Inside("setup.json")
    pause_file = Inside("paused")
    moves = Inside("moves")
    clock_file = Inside("clock")
    audit_file = Inside("audit.jsonl")
    gateway_token_file = Inside("gateway-token")
    team_queue_file = Inside("team-queue.jsonl")

    def _is_ours(self) -> bool:
        """Return whether the folder is empty or contains upwell's files. The permissions of any
        other folder must not be changed."""
        names = {path.name for path in self.root.iterdir()}
        return not names or bool(
            names & {"config.toml", "memory.db", "ledger.db", "log", "secret", "stm.json"}
        )

    def prepare(self) -> "Home":
        """Create the folder, accessible only to the user. An existing folder that has only other
        files keeps its permissions.

        Raises:
            StoreUnwritable: the folder cannot be created, belongs to another user or is a file, or
                its path is too long for SQLite.
        """
        if len(os.fsencode(self.root.absolute())) > MAX_PATH_BYTES:
            raise StoreUnwritable(
                f"cannot use {str(self.root)[:60]}… as upwell's home: its path is too long",
                hint=f"set UPWELL_HOME to a folder whose path has at most {MAX_PATH_BYTES} bytes",
            )
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = self.root.stat()
        except OSError as error:
            raise StoreUnwritable(
                f"cannot use {self.root} as upwell's home: {error.strerror}",
                hint="set UPWELL_HOME to a folder you can write to",
            ) from error
        if hasattr(os, "getuid") and info.st_uid != os.getuid():
            raise StoreUnwritable(
                f"{self.root} belongs to another user",
                hint="set UPWELL_HOME to a folder of your own",
            )
        if stat.S_IMODE(info.st_mode) & 0o077 and self._is_ours():
            self.root.chmod(0o700)
        return self
