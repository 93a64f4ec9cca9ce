"""The commands of homes whose memories are in PostgreSQL."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psycopg

from tests.conftest import Upwell
from tests.postgres import Cluster, cluster
from upwell.ground.postgres.schema import TABLES_OF_A_TENANT, TENANT_SETTING, tenant_number


def test_two_homes_share_their_memories(upwell: Upwell, tmp_path: Path) -> None:
    one, other = (
        {"UPWELL_HOME": str(tmp_path / name), "UPWELL_STORE__URL": url}
        for name in ("one", "other")
        for url in [cluster().emptied()]
    )
    id = upwell("remember", "The tide turns at noon", "--path", "src/tide.py", env=one).line
    hits = upwell("recall", "when does the tide turn?", "--json", env=other).json["hits"]
    assert [hit["id"] for hit in hits] == [id]
    assert id in upwell("context", "why does the tide turn at noon?", env=other).out
    assert upwell("forget", id, env=other).code == 0
    assert upwell("recall", "tide", "--json", env=one).json == {"hits": []}


def test_a_lost_database_is_named(upwell: Upwell) -> None:
    own = Cluster()
    reachable = {"UPWELL_STORE__URL": own.database()}
    upwell("remember", "The tide turns at noon", env=reachable)
    own.remove()
    lost = upwell("recall", "tide", env=reachable)
    assert lost.code == 1
    assert "PostgreSQL failed" in lost.err
    assert "Traceback" not in lost.err
    memory = json.loads(upwell("doctor", "--json", env=reachable).out)["parts"]["memory"]
    assert not memory["ok"]
    assert "PostgreSQL failed" in memory["detail"]


def test_a_wrong_address_is_refused_in_one_line(upwell: Upwell) -> None:
    done = upwell("recall", "tide", env={"UPWELL_STORE__URL": "mysql://db"})
    assert done.code == 1
    assert "store.url" in done.err
    assert "postgresql://" in done.err
    assert len(done.err.splitlines()) == 1


def test_a_password_with_an_at_sign_is_not_taken_for_a_host(upwell: Upwell) -> None:
    url = "postgresql://u:let@me@in@db/upwell"
    done = upwell("doctor", env={"UPWELL_STORE__URL": url})
    assert "percent-encoded" in done.out + done.err
    assert "me@in" not in done.out + done.err


def test_the_password_in_the_address_is_not_shown(upwell: Upwell) -> None:
    shown = upwell("config", "show", env={"UPWELL_STORE__URL": "postgresql://u:letmein@db/upwell"})
    assert "store.url" in shown.out
    assert "letmein" not in shown.out + shown.err


def filled(upwell: Upwell, tmp_path: Path, count: int) -> None:
    lines = "".join(
        json.dumps({"id": f"m{n}", "text": f"The tide number {n} turns at noon"}) + "\n"
        for n in range(count)
    )
    (tmp_path / "memories.jsonl").write_text(lines)
    assert upwell("import", "memories.jsonl").code == 0


def test_a_home_moves_to_postgres_and_back(upwell: Upwell, tmp_path: Path) -> None:
    url = cluster().emptied()
    upwell("remember", "Never sail at low tide", "--pin")
    gone = upwell("remember", "The tide turned yesterday").line
    upwell("forget", gone)
    upwell("stm", "add", "the harbour master is Ada")
    preview = upwell("migrate", "--to", url)
    assert "1 memory, 1 to copy" in preview.out
    assert "nothing was copied" in preview.out
    assert upwell("recall", "tide", "--json", env={"UPWELL_STORE__URL": url}).json == {"hits": []}
    moved = upwell("migrate", "--to", url, "--notes", "--apply", "--json").json
    assert (moved["notes"], moved["verified"]["equal"]) == (1, 1)
    again = upwell("migrate", "--to", url, "--notes", "--apply", "--json").json
    assert (again["notes"], again["to_copy"], again["verified"]["equal"]) == (0, 0, 1)
    assert again["verified"]["digest"] == moved["verified"]["digest"]
    team = {"UPWELL_STORE__URL": url, "UPWELL_HOME": str(tmp_path / "other")}
    assert "Ada" in upwell("recall", "harbour master", env=team).out
    assert upwell("restore", gone, env=team).code == 0
    late = upwell("remember", "A team's memory of the tide", env=team).line
    back = upwell("migrate", "--to", "sqlite", "--from", url, "--apply", "--json").json
    assert (back["verified"]["equal"], back["deleted_there"]) == (3, 1)
    ids = [hit["id"] for hit in upwell("recall", "tide", "--json").json["hits"]]
    assert late in ids
    assert gone not in ids


def test_a_killed_move_continues(
    upwell: Upwell, environment: Mapping[str, str], home: Path, tmp_path: Path
) -> None:
    url, count = cluster().emptied(), 3_000
    filled(upwell, tmp_path, count)
    command = [sys.executable, "-m", "upwell", "migrate", "--to", url, "--apply"]
    for kills in range(1, 4):
        moving = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        while moving.poll() is None and lines_in(home / "moves") < kills * 300:
            time.sleep(0.01)
        moving.kill()
        assert moving.wait() == -signal.SIGKILL, "the move was over before it was killed"
    done = upwell("migrate", "--to", url, "--apply", "--json").json
    assert 0 < done["to_copy"] < count
    assert done["verified"]["equal"] == count
    with psycopg.connect(url) as connection:
        connection.execute("SELECT set_config('upwell.tenant', %s, false)", [number_of_tenant()])
        stored = connection.execute("SELECT count(*), count(DISTINCT id) FROM upwell.memory")
        assert stored.fetchone() == (count, count)
        words = connection.execute("SELECT memories FROM upwell.term WHERE stem = 'tide'")
        assert words.fetchone() == (count,)


def lines_in(folder: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in folder.glob("*.jsonl"))


def number_of_tenant() -> str:
    return str(tenant_number("default"))


def test_a_move_without_a_database_is_refused(upwell: Upwell) -> None:
    done = upwell("migrate", "--to", "sqlite")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "--from URL" in done.err
    done = upwell("migrate", "--to", "elsewhere")
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert "postgresql://" in done.err


def test_a_replay_changes_nothing_in_the_database(upwell: Upwell, tmp_path: Path) -> None:
    url = cluster().database()
    env = {"UPWELL_STORE__URL": url}
    upwell("remember", "The tide turns at noon", "--path", "src/tide.py", env=env)
    before = _rows(url)
    events = tmp_path / "events.jsonl"
    lines = [
        {"session": "s", "i": 0, "t": 4e9, "kind": "start"},
        {
            "session": "s",
            "i": 1,
            "t": 4e9 + 1,
            "kind": "prompt",
            "text": "When does the tide turn in src/tide.py?",
        },
    ]
    events.write_text("".join(json.dumps(line) + "\n" for line in lines))
    replay = ("replay", str(events), "--host", "events", "--with", "memory,learned", "--json")
    done = upwell(*replay, env=env)
    assert done.code == 0, done.err
    decisions = [json.loads(line) for line in done.out.splitlines()]
    assert any(decision.get("memories") for decision in decisions), decisions
    assert _rows(url) == before


def _rows(url: str) -> dict[str, int]:
    """The number of rows of each table of a home's tenant."""
    counts = {}
    with psycopg.connect(url) as connection:
        number = str(tenant_number("default"))
        connection.execute("SELECT set_config(%s, %s, true)", [TENANT_SETTING, number])
        for table in TABLES_OF_A_TENANT:
            row = connection.execute(f"SELECT count(*) FROM upwell.{table}").fetchone()  # type: ignore[arg-type]
            assert row
            counts[table] = row[0]
    return counts
