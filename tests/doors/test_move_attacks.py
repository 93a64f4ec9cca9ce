"""Moves to PostgreSQL with hostile texts, with rows that others change, under a time limit for
statements, and beside a second move."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
import pytest

from tests.conftest import Upwell
from tests.postgres import APPLICATION, Cluster

HOSTILE = (
    {"id": "nul", "text": "nul \0 inside the tide", "tags": ["a\0b"], "source": "s\0x"},
    {"id": "surrogate", "text": "a lone \ud800 surrogate at low tide", "tags": ["\udfff"]},
    {"id": "long", "text": "the tide " * 20_000},
)
COUNT = 300
MOVE = ("migrate", "--apply", "--json", "--to")


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    own = Cluster()
    yield own
    own.remove()


def filled(upwell: Upwell, tmp_path: Path) -> int:
    """Fill the home. Returns the number of its memories."""
    usual = [{"id": f"m{n}", "text": f"The tide number {n} turns at noon"} for n in range(COUNT)]
    lines = [json.dumps(line) for line in (*usual, *HOSTILE)]
    (tmp_path / "memories.jsonl").write_text("\n".join(lines) + "\n")
    assert upwell("import", "memories.jsonl").code == 0
    return len(lines)


def altering(own: Cluster, url: str, sql: str) -> None:
    """Change exactly one row of the database by hand."""
    database = own.url(url.rpartition("/")[2], "postgres")
    with psycopg.connect(database, autocommit=True) as connection:
        assert connection.execute(sql).rowcount == 1  # type: ignore[arg-type]


def limit(own: Cluster, time: str) -> None:
    """Set the time limit for statements on the application's new connections."""
    with psycopg.connect(own.url("postgres", "postgres"), autocommit=True) as connection:
        connection.execute(
            f"ALTER ROLE {APPLICATION} SET statement_timeout = '{time}'"  # type: ignore[arg-type]
        )


def test_a_move_notices_what_other_hands_changed(
    upwell: Upwell, tmp_path: Path, own_cluster: Cluster
) -> None:
    count, url = filled(upwell, tmp_path), own_cluster.database()
    moved = upwell(*MOVE, url).json
    assert moved["verified"]["equal"] == count
    altering(own_cluster, url, "UPDATE upwell.memory SET text = 'altered' WHERE id = 'm5'")
    refused = upwell(*MOVE, url)
    assert (refused.code, len(refused.err.splitlines())) == (1, 1)
    assert "1 memory differs after the move, the first is 'm5'" in refused.err
    assert upwell(*MOVE, url).json["verified"]["digest"] == moved["verified"]["digest"]
    altering(own_cluster, url, "UPDATE upwell.memory SET tags = 'no JSON' WHERE id = 'm6'")
    altering(own_cluster, url, "DELETE FROM upwell.memory WHERE id = 'm7'")
    verified = upwell(*MOVE, url).json["verified"]
    assert (verified["equal"], verified["deleted_there"]) == (count - 1, 1)
    back = {"UPWELL_HOME": str(tmp_path / "other")}
    home = upwell("migrate", "--to", "sqlite", "--from", url, "--apply", "--json", env=back).json
    assert home["verified"]["equal"] == count - 1
    assert home["verified"]["digest"] == verified["digest"]


def test_a_move_continues_after_a_limit_on_statements(
    upwell: Upwell, tmp_path: Path, own_cluster: Cluster
) -> None:
    count, url = filled(upwell, tmp_path), own_cluster.database()
    assert upwell("recall", "tide", env={"UPWELL_STORE__URL": url}).code == 0
    limit(own_cluster, "2ms")
    refused = upwell(*MOVE, url)
    assert (refused.code, len(refused.err.splitlines())) == (1, 1)
    assert "statement timeout" in refused.err
    limit(own_cluster, "0")
    assert upwell(*MOVE, url).json["verified"]["equal"] == count


def test_two_moves_at_once_double_nothing(
    upwell: Upwell, environment: Mapping[str, str], tmp_path: Path, own_cluster: Cluster
) -> None:
    count, url = filled(upwell, tmp_path), own_cluster.database()
    moves = [
        subprocess.Popen(
            [sys.executable, "-m", "upwell", *MOVE, url],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    errors = [move.communicate(timeout=120)[1] for move in moves]
    assert 0 in {move.returncode for move in moves}
    for move, error in zip(moves, errors, strict=True):
        assert move.returncode == 0 or "is locked by another process" in error
    assert upwell(*MOVE, url).json["verified"]["equal"] == count
    with psycopg.connect(own_cluster.url(url.rpartition("/")[2], "postgres")) as connection:
        rows = connection.execute("SELECT memories FROM upwell.term WHERE stem = 'noon'")
        assert rows.fetchone() == (COUNT,)
