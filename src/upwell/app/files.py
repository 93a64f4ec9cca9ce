"""Opens the other files of a home: the TTL store, notes, the audit log, and secrets."""

import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path

from upwell.app.store import Files
from upwell.compress.originals import MAX_BYTES as ORIGINALS_BYTES
from upwell.compress.originals import Originals
from upwell.config import Config
from upwell.ground.clock import SYSTEM_CLOCK, Clock, ClockRecord
from upwell.ground.errors import StoreError
from upwell.ground.files import create_once, file_exists, read_regular_file
from upwell.ground.ledger import OWNER, EntryKind, TtlStore, copied_in_memory
from upwell.ground.project import project_of, tracks
from upwell.ground.secrets.redact import has_secret
from upwell.ground.sqlite.database import open_database
from upwell.ground.trace import LOG
from upwell.memory.notes.file import Origins
from upwell.memory.notes.stm import ShortTerm, is_untrusted
from upwell.memory.places import MAX_BYTES as PLACES_BYTES
from upwell.usage.audit import FileLog, Log, PostgresLog
from upwell.usage.events import Events

PROJECT_FOLDER = ".upwell"


def open_notes(config: Config, cwd: str | None) -> ShortTerm:
    """The notes of the folder's project (`.upwell/stm.json`) if the project has a `.upwell` folder,
    otherwise the notes of the home. A file that came with a repository or an archive
    is not used, because this user did not write its notes. Neither is a folder that came with the
    repository, unless this user has written notes in it: they might be published with it.
    """
    home, project = config.home, project_of(cwd)
    notes = ShortTerm(home.notes_file, options=config.stm, origins=Origins(home.origins_file))
    folder = Path(project, PROJECT_FOLDER) if project else None
    if not project or not folder or folder.is_symlink() or not folder.is_dir():
        return notes
    project_notes = ShortTerm(
        folder / notes.path.name,
        options=config.stm,
        origins=Origins(home.origins_file),
        root=project,
    )
    exists = file_exists(project_notes.path)
    tracked = f"{PROJECT_FOLDER}/{notes.path.name if exists else ''}"
    if not tracks(project, tracked) and not is_untrusted(project_notes):
        return project_notes
    if not exists:
        return notes
    LOG.warning("%s was not written by this home's upwell and is not used", project_notes.path)
    notes.ignored = project_notes.path
    return notes


def open_ttl_store(config: Config, files: Files, clock: Clock = SYSTEM_CLOCK) -> TtlStore:
    caps: dict[str, int] = {
        EntryKind.ORIGINAL: ORIGINALS_BYTES,
        EntryKind.RESPONSE: 64_000_000,
        EntryKind.CUT: 16_000_000,
        EntryKind.PLACE: PLACES_BYTES,
        EntryKind.WAY: 16_000_000,
        EntryKind.USE: 4_000_000,
        EntryKind.COMPRESSION_REMARK: 1_000_000,
    }
    try:
        database = open_database(config.home.ledger_db, [OWNER], synchronous="NORMAL")
    except StoreError as error:
        LOG.error("ledger.db cannot be used; this process keeps its data in memory: %s", error)
        return TtlStore(caps=caps, clock=clock)
    if database.obstacle:
        LOG.error(
            "ledger.db cannot be written; this process keeps its data in memory: %s",
            database.obstacle,
        )
        return TtlStore(copied_in_memory(database.path), caps=caps, clock=clock)
    ttl_store = TtlStore(database, caps=caps, clock=clock)
    files.databases.append(database)
    seen = ClockRecord(config.home.clock_file, clock)
    for expire in (ttl_store.expire, Events(ttl_store, clock).expire):
        files.chores.append(seen.unless_jumped(expire))
    return ttl_store


def open_audit_log(config: Config, files: Files) -> Log:
    """The audit log of the home's tenant."""
    if files.postgres:
        return PostgresLog(files.postgres, config.store.tenant)
    return FileLog(config.home.audit_file)


def export_key(config: Config) -> Callable[[], bytes]:
    """The key with which this home signs exports. Teammates have other keys: an export of theirs is
    not this user's own."""
    return partial(own_secret, config.home.export_key_file)


def own_secret(path: Path) -> bytes:
    """The content of a file, which is created once, atomically, with mode 0600. If it cannot be
    used, a secret of this process."""
    try:
        create_once(path, secrets.token_bytes(32))
        return read_regular_file(path)
    except OSError as error:
        LOG.warning("the secret in %s cannot be used: %s", path, error)
        return secrets.token_bytes(32)


def private_ttl_store() -> TtlStore:
    return TtlStore(caps={EntryKind.ORIGINAL: 64_000_000})


def open_originals(config: Config, ttl_store: TtlStore, private: TtlStore) -> Originals:
    return Originals(
        durable=ttl_store,
        private=private,
        secret=own_secret(config.home.secret_file),
        has_secret=has_secret,
        options=config.compress,
    )
