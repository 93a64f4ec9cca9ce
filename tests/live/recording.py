"""Transcripts as test data: small, and without anything of the machine that wrote them.

A recording is a folder `PART-VERSION`, with files named as the agent named them. A database is
stored as the SQL that creates it.
"""

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from shutil import rmtree
from typing import Any

from tests.live.install import AGENTS, PREFIX, ROOT

RECORDED = ROOT / "tests" / "unit" / "replay" / "recorded"
HOME = "/home/dev"
PROJECT = f"{HOME}/project"
MAX_CHARS = 600
"""Longer strings lose their middle."""
_COUNTERS = frozenset(
    "api-request api-request-blob api-request-shape prompt_snapshot token_count token_usage_record "
    "hook.start hook.end session.usage_record assistant.usage".split()
)
"""Kinds of records in which agents keep books. Only the first of each is kept."""
_INSTRUCTIONS = _COUNTERS | {
    "additional_tools",
    "developer",
    "system.message",
    "agent_listing_delta",
}
"""Kinds and roles of records with the agent's own instructions."""
MAX_INSTRUCTIONS = 2
MAX_INSTRUCTION_CHARS = 100
_TABLES = ("project", "session", "message", "part")
_PORT = re.compile(r"127\.0\.0\.1:\d{1,5}")


def recording_of(part: str) -> Path:
    """The folder of a part's recording, made with the installed version."""
    return RECORDED / f"{part}-{AGENTS[part.partition('-')[0]].version}"


def record(part: str, stage: Path, transcripts: Sequence[Path]) -> None:
    """Replace the recordings of a part with these files, which an agent wrote below `stage`."""
    assert transcripts, "nothing to record"
    for older in RECORDED.glob(f"{part}-[0-9]*"):
        rmtree(older)
    names = _names(stage)
    for file in transcripts:
        copy = recording_of(part) / _cleaned(file.parent.name, names) / file.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".db":
            copy.with_suffix(".sql").write_text(_dumped(file, names))
        else:
            copy.write_text("".join(f"{line}\n" for line in _cleaned_lines(file, names)))


def restored(recording: Path, folder: Path) -> Path:
    """The folder with the transcripts of a recording: itself, or `folder` for a database."""
    for file in recording.rglob("*.sql"):
        with closing(sqlite3.connect(folder / f"{file.stem}.db")) as db:
            db.executescript(file.read_text())
        return folder
    return recording


def _names(stage: Path) -> Mapping[str, str]:
    """Paths of the machine and what a recording has for them, the longest first."""
    paths = {
        str(stage): HOME,
        str(stage).replace("/", "-").replace("_", "-"): HOME.replace("/", "-"),
        str(PREFIX.resolve()): "/opt/agents",
        str(ROOT): "/opt/upwell",
    }
    return dict(sorted(paths.items(), key=lambda pair: -len(pair[0])))


def _cleaned_lines(file: Path, names: Mapping[str, str]) -> Iterator[str]:
    before: set[str] = set()
    for line in file.read_text().splitlines():
        record = json.loads(line)
        inner = record.get("payload") or record.get("attachment") or {}
        kinds = {str(record.get("type")), str(inner.get("type")), str(inner.get("role"))}
        if not kinds & _COUNTERS & before:
            short = _shortened(record) if kinds & _INSTRUCTIONS else record
            yield _dumped_json(_cleaned(short, names))
        before |= kinds


def _shortened(value: Any) -> Any:
    """Instructions of which only the beginning is left."""
    if isinstance(value, Mapping):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value[:MAX_INSTRUCTIONS]]
    return value[:MAX_INSTRUCTION_CHARS] if isinstance(value, str) else value


def _cleaned(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {_cleaned(key, names): _cleaned(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item, names) for item in value]
    if not isinstance(value, str):
        return value
    for path, name in names.items():
        value = value.replace(path, name)
    value = _PORT.sub("127.0.0.1:1234", value)
    if len(value) > MAX_CHARS:
        half = MAX_CHARS // 2
        value = f"{value[:half]}\n[…]\n{value[-half:]}"
    return value


def _dumped_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _dumped(file: Path, names: Mapping[str, str]) -> str:
    with closing(sqlite3.connect(":memory:")) as copy:
        with closing(sqlite3.connect(file)) as db:
            db.backup(copy)
        tables = copy.execute("select name from sqlite_master where type = 'table'").fetchall()
        for (table,) in tables:
            if table in _TABLES:
                _clean_table(copy, table, names)
            else:
                copy.execute(f'drop table "{table}"')
        copy.commit()
        return "".join(f"{statement}\n" for statement in copy.iterdump())


def _clean_table(db: sqlite3.Connection, table: str, names: Mapping[str, str]) -> None:
    columns = [column[1] for column in db.execute(f'pragma table_info("{table}")')]
    places = ", ".join(f'"{column}" = ?' for column in columns)
    for number, *row in db.execute(f'select rowid, * from "{table}"').fetchall():
        cells = [_cleaned_cell(cell, names) for cell in row]
        db.execute(f'update "{table}" set {places} where rowid = ?', (*cells, number))


def _cleaned_cell(cell: Any, names: Mapping[str, str]) -> Any:
    if isinstance(cell, str) and cell.startswith(("{", "[")):
        return _dumped_json(_cleaned(json.loads(cell), names))
    return _cleaned(cell, names)
