"""A team's memories by token: real commands, a real `upwell serve --http`, a real PostgreSQL."""

import http.client
import json
import secrets
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.doors.developer import FERRY, SOON_SECONDS, Developer, stored, token_of
from tests.doors.replicas import Replica, replicas
from tests.postgres import cluster


@pytest.fixture
def url() -> str:
    return cluster().emptied()


def asked(replica: Replica, method: str, path: str, body: str = "") -> tuple[int, bytes]:
    """The status and the body of an answer; 0 if the connection was refused."""
    connection = http.client.HTTPConnection("127.0.0.1", replica.port, timeout=30)
    headers = {"authorization": f"Bearer {replica.token}", "content-type": "application/json"}
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except ConnectionRefusedError:
        return 0, b""
    finally:
        connection.close()


def source_of(replica: Replica) -> str:
    return str(json.loads(asked(replica, "GET", "/team")[1])["source"])


def share(replica: Replica, source: str, id: str) -> int:
    """Send a write. Returns the status of the answer."""
    memory = {"id": id, "text": f"tide {id}", "namespace": "team"}
    write = {"token": secrets.token_hex(16), "id": id, "content": memory}
    message = {"protocol": 2, "source": source, "writes": [write]}
    return asked(replica, "POST", "/team/writes", json.dumps(message))[0]


def assert_no_file_has(folder: Path, word: str, *, but: Path) -> None:
    """Assert that no file below `folder`, except `but`, contains `word`."""
    for path in folder.rglob("*"):
        if path.is_file() and path != but:
            assert word.encode() not in path.read_bytes(), path


def test_joining_a_team_by_token_and_leaving_it(tmp_path: Path, url: str) -> None:
    with replicas(tmp_path, url, "replica") as (replica,):
        ada, address = Developer(tmp_path / "ada", url), f"http://127.0.0.1:{replica.port}"
        ben = Developer(tmp_path / "ben", "")
        for name in ("URL", "LOCAL"):
            ben.environment.pop(f"UPWELL_STORE__{name}")
        assert "upwell team join" in ben.refused("team", "status")
        wrong = ben.team("join", address, token="wrong-token-0123456789")
        assert wrong.returncode == 1
        assert b"does not accept the token" in wrong.stderr
        assert b"wrong-token" not in wrong.stderr + wrong.stdout
        unencrypted = ben.team("join", "http://gateway.example", token="t" * 20)
        assert b"unencrypted" in unencrypted.stderr
        token = token_of(replica, "ben")
        assert ben.team("join", address, token=token).returncode == 0
        kept = ben.home / "gateway-token"
        assert kept.read_text().strip() == token
        assert kept.stat().st_mode & 0o777 == 0o600
        ada.upwell("remember", FERRY, "--share")
        own = ben.upwell("remember", "The pier lamps are lit by the night watch").strip()
        ben.start()
        try:
            assert ben.hears("first", "harbour master")
            done = ben.team("status")
            assert done.returncode == 0
            assert b"1 shared memory" in done.stdout
            shared = ben.upwell("remember", "The crane inspector comes on Fridays", "--share")
            assert (shared.strip(), "The crane inspector comes on Fridays") in stored(url)
            assert "daemon stop" in ben.refused("team", "leave")
        finally:
            ben.stop()
        assert_no_file_has(ben.home, token, but=kept)
        revoked = [sys.executable, "-m", "upwell", "token", "remove", "ben"]
        subprocess.run(revoked, env=replica.environment, capture_output=True, check=True)
        end = time.monotonic() + SOON_SECONDS
        while ben.team("status").returncode == 0:
            assert time.monotonic() < end
        out = ben.team("status", "--json").stdout
        assert "does not accept the token" in json.loads(out)["detail"]
        assert "harbour master" in ben.upwell("recall", "ferry timetable")
        assert b"2 copied memories removed" in ben.team("leave").stdout
        assert not kept.exists()
        assert json.loads(ben.upwell("recall", "--json"))["hits"][0]["id"] == own
        assert len(json.loads(ben.upwell("recall", "--json"))["hits"]) == 1


def test_a_reader_is_told_that_nothing_is_shared(tmp_path: Path, url: str) -> None:
    with replicas(tmp_path, url, "replica") as (replica,):
        token = token_of(replica, "rita", "--role", "reader")
        address = f"http://127.0.0.1:{replica.port}"
        rita = Developer(tmp_path / "rita", address, UPWELL_STORE__TOKEN=token)
        _, err = rita.both("remember", FERRY, "--share")
        assert "may only read" in err
        assert "may only read" in str(rita.team_row()["detail"])
        assert stored(url) == []


def test_a_replica_that_ends_answers_the_write_that_it_has(tmp_path: Path, url: str) -> None:
    """Ten machines write without a pause while the only replica is told to end."""
    with replicas(tmp_path, url, "replica") as (replica,):
        answered: list[tuple[int, str]] = []
        stop, source = threading.Event(), source_of(replica)

        def write(machine: int) -> None:
            for number in range(10_000):
                id = f"m{machine}-{number}"
                status = share(replica, source, id)
                if stop.is_set() and status == 0:
                    return
                answered.append((status, id))

        threads = [threading.Thread(target=write, args=(machine,)) for machine in range(10)]
        for thread in threads:
            thread.start()
        while len(answered) < 50:
            time.sleep(0.01)
        stop.set()
        assert replica.stop() == 0
        for thread in threads:
            thread.join()
    assert {status for status, _ in answered} == {200}
    assert {id for _, id in answered} == {id for id, _ in stored(url)}
