"""What Prometheus reads from a gateway over PostgreSQL."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import Upwell
from tests.doors.address import Address, serving
from tests.doors.conftest import script, write_config
from tests.postgres import Cluster

SECRET = "kestrelkestrel"


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    own = Cluster()
    yield own
    own.remove()


def figures(owner: Address) -> dict[str, float]:
    """Every sample by its name and label values, read by Prometheus' own parser."""
    status, headers, body = owner.send("GET", None, "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(body.decode()):
        assert family.documentation, family.name
        for sample in family.samples:
            assert not {"tenant", "principal", "session", "tool"} & sample.labels.keys()
            found[" ".join([sample.name, *sample.labels.values()])] = sample.value
    return found


def test_the_work_of_a_gateway_is_measured(
    upwell: Upwell, home: Path, tmp_path: Path, own_cluster: Cluster
) -> None:
    write_config(home, {"up": script("upstream")}, store={"url": own_cluster.database()})
    token = upwell("token", "add", "ada").line
    upwell("remember", f"The kiln settlement runs at midnight, says {SECRET}", "--path", "kiln.py")
    with serving(home, tmp_path / "serve.log") as owner:
        end = time.monotonic() + 30
        while not (before := figures(owner))["upwell_upstream_up up"]:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert before["upwell_database_up"] == 1
        ada, own = Address(owner.port, token).begin(), owner.begin()
        for number in range(3):
            ada.call("up__echo", text=f"number {number}")
            own.call("up__echo", text=f"{SECRET} {number}")
        own.call("up__big_markdown")
        own.call("up__fail")
        Address(owner.port, "made-up").send("POST", {"jsonrpc": "2.0"})
        after = figures(owner)

        def rise(name: str) -> float:
            return after.get(name, 0.0) - before.get(name, 0.0)

        assert rise("upwell_calls_total up ok") == 7
        assert rise("upwell_calls_total up tool error") == 1
        assert rise("upwell_call_seconds_count up") == 8
        assert rise("upwell_decision_seconds_count tool") >= 8
        assert rise("upwell_tokens_saved_total up") > 100
        assert rise("upwell_denials_total 401") == 1
        assert after["upwell_calls_in_flight up"] == 0
        assert 1 <= after["upwell_database_connections"] <= after["upwell_database_connections_max"]
        assert after["process_cpu_seconds_total"] > 0
        assert after["process_resident_memory_bytes"] > 1_000_000
        text = json.dumps(after)
        for private in (SECRET, "ada", token):
            assert private not in text

        own_cluster.stop()
        end = time.monotonic() + 20
        while figures(owner)["upwell_database_up"]:
            own.call("up__echo", text="on")
            assert time.monotonic() < end
        assert figures(owner)["upwell_database_losses_total"] >= 1
        own_cluster.start()
        while not figures(owner)["upwell_database_up"]:
            assert time.monotonic() < end + 20
            time.sleep(0.1)
