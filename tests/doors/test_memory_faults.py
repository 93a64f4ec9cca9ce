"""What commands do when the disk, another process or a fault makes the memory's files unusable. The
user gets one clear line with a hint, or an answer without the missing part. Acknowledged memories
are available again when the fault is over.
"""

import json
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import Done, Upwell
from tests.doors.conftest import Gateway
from tests.doors.reading import everything

FACT, NOTE, LINE = "the kettle is blue", "the lamp is green", "The courier listens on port 7412."
WITHOUT_PRIVILEGES = (
    ("setpriv", "--bounding-set", "-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
)
"""Root may write anywhere; this privilege is removed here."""
needs_no_root = pytest.mark.skipif(
    bool(WITHOUT_PRIVILEGES) and shutil.which("setpriv") is None, reason="root may write anywhere"
)
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.fixture
def filled(upwell: Upwell, home: Path, tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text(f"# Courier\n\n{LINE}\n")
    assert upwell("remember", FACT).code == 0
    assert upwell("stm", "add", NOTE).code == 0
    assert upwell("import", "notes").code == 0
    return home


@pytest.fixture
def hindered(environment: Mapping[str, str], tmp_path: Path) -> Callable[..., Done]:
    """The command line, with a full disk or without root's privileges."""

    def run(*args: str, max_bytes: int | None = None) -> Done:
        def limit() -> None:
            if max_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, max_bytes))

        prefix = () if max_bytes is not None else WITHOUT_PRIVILEGES
        done = subprocess.run(
            [*prefix, sys.executable, "-m", "upwell", *args],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            preexec_fn=limit,
            timeout=120,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


def refused(done: Done, named: str) -> None:
    """One line that names the file and says what to do."""
    assert done.code == 1, done.out
    (line,) = done.err.splitlines()
    assert named in line
    assert line.endswith(")")


def all_there(upwell: Upwell) -> None:
    texts = [hit["text"] for hit in upwell("recall", "kettle", "--json").json["hits"]]
    assert FACT in texts
    (hit,) = upwell("recall", "courier port", "--json").json["hits"]
    assert (hit["source"], hit["lines"]) == ("notes/a.md", [3, 3])
    assert NOTE in upwell("stm", "search", "lamp").out


def test_a_full_disk(upwell: Upwell, hindered: Callable[..., Done], filled: Path) -> None:
    refused(hindered("remember", "another", max_bytes=1), "memory.db")
    refused(hindered("stm", "add", "another", max_bytes=1), "stm.")
    assert NOTE in hindered("stm", "search", "lamp", max_bytes=1).out
    all_there(upwell)
    assert "another" not in (filled / "stm.json").read_text()
    assert upwell("remember", "room again").code == 0


@needs_no_root
def test_a_home_that_became_read_only_is_reported(
    upwell: Upwell, hindered: Callable[..., Done], filled: Path
) -> None:
    filled.chmod(0o500)
    try:
        refused(hindered("remember", "another"), "memory.db")
        refused(hindered("stm", "add", "another"), "stm.")
        result = hindered("stm", "search", "lamp")
        assert (result.code, NOTE in result.out) == (0, True)
    finally:
        filled.chmod(0o700)
    all_there(upwell)


@only_root
@needs_no_root
def test_files_of_another_user(upwell: Upwell, hindered: Callable[..., Done], filled: Path) -> None:
    def given_away(name: str) -> Path:
        os.chown(filled / name, 12345, 12345)
        return filled / name

    theirs = given_away("memory.db")
    refused(hindered("recall", "kettle"), "belongs to another user")
    assert NOTE in hindered("stm", "search", "lamp").out
    os.chown(theirs, 0, 0)
    theirs = given_away("stm.json")
    refused(hindered("stm", "search", "lamp"), "stm.json")
    assert FACT in hindered("recall", "kettle").out
    os.chown(theirs, 0, 0)
    theirs = given_away("index.db")
    hits = hindered("recall", "kettle")
    assert FACT in hits.out
    assert "index.db belongs to another user" in hits.err
    os.chown(theirs, 0, 0)
    all_there(upwell)


@pytest.mark.slow
def test_databases_that_another_process_holds(upwell: Upwell, filled: Path) -> None:
    with closing(sqlite3.connect(filled / "memory.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        refused(upwell("remember", "another"), "locked by another process")
        all_there(upwell)
    (filled.parent / "notes" / "b.md").write_text("The ferry leaves at noon.\n")
    with closing(sqlite3.connect(filled / "index.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        hits = upwell("recall", "courier port")
        assert LINE in hits.out
        assert "out of date" in hits.err
    assert "a.md" not in upwell("recall", "ferry noon").out
    all_there(upwell)


@pytest.mark.parametrize("name", ["memory.db", "index.db", "ledger.db"])
def test_a_page_overwritten(upwell: Upwell, filled: Path, name: str) -> None:
    path = filled / name
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    rng = random.Random(name)
    page = rng.randrange(1, path.stat().st_size // 4096)
    with path.open("r+b") as file:
        file.seek(page * 4096)
        file.write(rng.randbytes(4096))
    stored = upwell("remember", "after the damage").line
    hits = upwell("recall", "after the damage", "--json").json["hits"]
    assert stored in [hit["id"] for hit in hits]
    if name != "memory.db":
        all_there(upwell)
    assert upwell("stm", "search", "lamp").code == 0


HOSTILE = [
    "x" * 1_000_000,
    "kettle " * 150_000,
    "kettle\0blue",
    "\u202ekettle\u202c מה הצבע של הקומקום",
    "🫖" * 500,
    'NEAR("kettle" OR, 3) AND body:* ^"',
    "\ufeff",
    "--",
]


def test_no_query_ends_an_agents_session(gateway: Gateway, filled: Path) -> None:
    peer = gateway({})
    peer.wait_for_tools("upwell__memory_search")
    for text in HOSTILE:
        for tool, key in (
            ("memory_search", "query"),
            ("search_memory", "query"),
            ("memory_context", "message"),
        ):
            reply = peer.ask("tools/call", {"name": f"upwell__{tool}", "arguments": {key: text}})
            assert "result" in reply, (tool, text[:20], reply)
    for content in ("", "x" * 1_000_000, "nul \0 inside", "🫖 עברית \u202e"):
        reply = peer.ask(
            "tools/call", {"name": "upwell__add_memory", "arguments": {"content": content}}
        )
        assert "result" in reply
    assert FACT in everything(peer.call("upwell__memory_search", query="which kettle is blue"))


def test_a_damaged_memory_comes_from_the_backup_and_is_reported(upwell: Upwell, home: Path) -> None:
    assert upwell("remember", FACT).code == 0
    (copy,) = (home / "backups").glob("memory-*.db")
    os.utime(copy, (copy.stat().st_mtime - 86_400,) * 2)
    for suffix in ("-wal", "-shm"):
        (home / f"memory.db{suffix}").unlink(missing_ok=True)
    (home / "memory.db").write_bytes(b"a letter" * 5_000)
    met = upwell("recall", "kettle")
    assert met.code == 0
    (aside,) = home.glob("memory.db.corrupt-*")
    assert FACT in met.out
    taken = f"0 rows saved, 1 more taken from {copy}"
    for text in (str(aside), taken, "memories since the last daily backup may be missing"):
        assert text in met.err
    assert "damaged" not in upwell("recall", "kettle").err
    doctor = upwell("doctor", "--json")
    assert doctor.code == 1
    assert str(aside) in json.loads(doctor.out)["parts"]["damage"]["detail"]
    aside.unlink()
    assert "damage" not in upwell("doctor", "--json").json["parts"]
