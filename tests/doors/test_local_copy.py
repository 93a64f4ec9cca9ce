"""Developers' machines with a snapshot of the team's memories, over a network that is slow, cut or
silent: real commands, hooks and daemons, and a real PostgreSQL, alone or behind a real gateway."""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.doors.developer import (
    FERRY,
    QUESTION,
    SOON_SECONDS,
    Developer,
    stored,
    stores_of,
    token_of,
)
from tests.doors.hook_events import HOSTS
from tests.doors.replicas import replicas
from tests.postgres import APPLICATION, cluster
from tests.proxy import Proxy
from upwell.app.local_copy import POLL_SECONDS
from upwell.ground.postgres.connection import migrate
from upwell.ground.postgres.schema import TABLES_OF_A_TENANT

DELAY_SECONDS = 0.05


@pytest.fixture
def url() -> str:
    """An empty database with its tables, which would take long to create over a slow network."""
    emptied = cluster().emptied()
    asyncio.run(migrate(emptied))
    return emptied


@pytest.fixture(params=["database", "gateway"])
def network(
    request: pytest.FixtureRequest, tmp_path: Path, url: str
) -> Iterator["tuple[Proxy, str, dict[str, str]]"]:
    """A proxy that makes the network to the team's store slow, the store's address through it, and
    the settings of a developer who uses that address."""
    if request.param == "database":
        opened = Proxy(cluster().port, DELAY_SECONDS)
        yield opened, opened.url(url), {}
        opened.close()
        return
    with replicas(tmp_path, url, "replica") as (replica,):
        opened = Proxy(replica.port, DELAY_SECONDS)
        settings = {"UPWELL_STORE__TOKEN": token_of(replica, "ben")}
        yield opened, f"http://127.0.0.1:{opened.port}", settings
        opened.close()


@pytest.fixture
def proxy(network: tuple[Proxy, str, dict[str, str]]) -> Proxy:
    return network[0]


@pytest.fixture
def developers(
    tmp_path: Path, url: str, network: tuple[Proxy, str, dict[str, str]]
) -> Iterator[tuple[Developer, Developer]]:
    """Ada beside the database, and Ben behind the slow network."""
    _, address, settings = network
    ada, ben = Developer(tmp_path / "ada", url), Developer(tmp_path / "ben", address, **settings)
    ben.start()
    yield ada, ben
    ben.stop()
    ada.stop()


def until_quiet(proxy: Proxy, seconds: float) -> None:
    """Wait until the daemon makes no more requests."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        before = proxy.round_trips
        time.sleep(seconds)
        if proxy.round_trips == before:
            return


def test_a_decision_takes_no_round_trip(
    developers: tuple[Developer, Developer], proxy: Proxy
) -> None:
    ada, ben = developers
    ada.upwell("remember", FERRY, "--share")
    assert ben.hears("first", "harbour master")
    until_quiet(proxy, seconds=1.0)
    before, began = proxy.round_trips, time.monotonic()
    for number in range(5):
        text, _ = ben.prompt(f"s{number}")
        assert "harbour master" in text
    # The daemon asks now and then whether the snapshot is still current.
    asked = 1 + (time.monotonic() - began) / (POLL_SECONDS * 0.8)
    assert proxy.round_trips - before <= 2 * asked
    assert ben.team_row()["ok"]


@pytest.mark.parametrize("fault", ["cut", "silence", "half_close"])
def test_work_goes_on_without_the_network_and_what_waited_arrives_once(
    developers: tuple[Developer, Developer], proxy: Proxy, url: str, fault: str
) -> None:
    ada, ben = developers
    ada.upwell("remember", FERRY, "--share")
    assert ben.hears("first", "harbour master")
    getattr(proxy, fault)()
    for number in range(3):
        assert "harbour master" in ben.prompt(f"offline {number}")[0]
    if fault != "half_close":
        out, err = ben.both("remember", "The pier lamps are lit by the night watch", "--share")
        assert "will be sent once" in err
        row = ben.team_row()
        assert not row["ok"]
        assert "1 write waits" in str(row["detail"])
        assert len(stored(url)) == 1
    else:
        out, _ = ben.both("remember", "The pier lamps are lit by the night watch", "--share")
    proxy.mend()
    id = out.strip()
    end = time.monotonic() + SOON_SECONDS
    while (id, "The pier lamps are lit by the night watch") not in stored(url):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert stores_of(url, id) == 1
    ada.upwell("remember", "The crane inspector comes on Fridays", "--share")
    while "crane inspector" not in ben.upwell("recall", "crane inspector"):
        assert time.monotonic() < end + SOON_SECONDS
        time.sleep(0.2)


def test_a_machine_that_never_reached_the_database_works_alone(tmp_path: Path) -> None:
    ben = Developer(tmp_path / "ben", "postgresql://nobody@127.0.0.1:9/none")
    ben.start()
    try:
        ben.upwell("remember", FERRY)
        assert "harbour master" in ben.prompt("s")[0]
        assert "never up to date" in str(ben.team_row()["detail"])
    finally:
        ben.stop()


def test_a_memory_is_forgotten_on_every_machine(
    developers: tuple[Developer, Developer], url: str
) -> None:
    ada, ben = developers
    id = ada.upwell("remember", FERRY, "--share").strip()
    assert ben.hears("first", "harbour master")
    ben.upwell("forget", id, "--now")
    end = time.monotonic() + SOON_SECONDS
    while stored(url):
        assert time.monotonic() < end
        time.sleep(0.1)
    ada.start()
    while "harbour" in ada.upwell("recall", "ferry"):
        assert time.monotonic() < end
        time.sleep(0.2)
    assert ada.prompt("s")[0] == ""


SECRET = "xqplanted"


def test_nothing_personal_reaches_the_team(tmp_path: Path, url: str) -> None:
    """Everything that upwell learns of a day's work has a planted word in it, even the folders."""
    ada = Developer(tmp_path / f"{SECRET}-ada", url, UPWELL_HOOK__CAPTURE="true")
    ada.start()
    try:
        ada.upwell("remember", f"{SECRET} likes tea", "--path", f"src/{SECRET}.py", "--pin")
        ada.upwell("remember", f"{SECRET} private", "--namespace", "me/diary")
        ada.upwell("stm", "add", f"{SECRET} note")
        ada.keep([{"id": f"{SECRET}-1", "text": f"{SECRET} imported", "namespace": "learnings"}])
        ada.upwell("remember", FERRY, "--share", "--path", ada.file("ferry.py"))
        ada.upwell("context", f"Where does {SECRET} keep the tea?", "--session", f"{SECRET}-c")
        asked = [ada.prompt(f"{SECRET}-{n}", f"{QUESTION} {SECRET} asks")[0] for n in range(2)]
        surfacing = re.search(r"s_[0-9a-f]{12}", "".join(asked))
        assert surfacing, "nothing surfaced"
        ada.upwell("feedback", surfacing[0], "not_relevant")
        tool = HOSTS["claude"].tool(str(ada.project), ada.file(f"{SECRET}.py"))
        ada.hook("claude", event={**tool, "session_id": f"{SECRET}-0"})
        (ada.project / f"{SECRET}.md").write_text(f"# {SECRET}\n\n{SECRET} documents\n")
        ada.upwell("import", f"{SECRET}.md")
        ada.upwell("recall", SECRET)
        assert "0 writes" not in str(ada.team_row()["detail"])
    finally:
        ada.stop()
    found, shared = [], []
    with psycopg.connect(url.replace(APPLICATION, "postgres")) as connection:
        tables = [
            row[0]
            for row in connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'upwell'"
            )
        ]
        assert {*TABLES_OF_A_TENANT} <= {*tables}
        for table in tables:
            rows = connection.execute(f"SELECT t::text FROM upwell.{table} t").fetchall()
            content = "\n".join(row[0] for row in rows)
            # Bytes are shown in hexadecimal digits.
            if SECRET in content or SECRET.encode().hex() in content:
                found.append(table)
            if "harbour" in content:
                shared.append(table)
    assert found == []
    assert "memory" in shared


def test_sharing_needs_a_team_and_a_remote_address(tmp_path: Path, url: str) -> None:
    ada = Developer(tmp_path / "ada", url)
    assert "private" in ada.refused("remember", "x", "--share", "--namespace", "me/x")
    (ada.project / ".git/config").unlink()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "upwell", "remember", "x", "--share"],
        env=ada.environment,
        cwd=ada.project,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 1 or done.returncode == 2
    assert b"no remote address" in done.stderr
    ada.environment.pop("UPWELL_STORE__URL")
    assert "store.url" in ada.refused("remember", "x", "--share")
