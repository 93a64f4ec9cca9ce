"""The commands of homes whose memories are in PostgreSQL."""

import json
from pathlib import Path

from tests.conftest import Upwell
from tests.postgres import Cluster, cluster


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


def test_the_password_in_the_address_is_not_shown(upwell: Upwell) -> None:
    shown = upwell("config", "show", env={"UPWELL_STORE__URL": "postgresql://u:letmein@db/upwell"})
    assert "store.url" in shown.out
    assert "letmein" not in shown.out + shown.err
