"""`memory.backend = qmd` through the real doors, over a stand-in for the program."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import Upwell
from tests.doors.conftest import Gateway
from tests.doors.qmd import qmd_env
from tests.doors.reading import everything

FACT = "The settlement job runs before midnight UTC, or refunds double."


@pytest.fixture
def env(tmp_path: Path) -> Mapping[str, str]:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "billing.md").write_text(f"# Billing\n\n{FACT}\n")
    return qmd_env(tmp_path, notes)


def test_qmd_is_searched_beside_the_stored_memories(upwell: Upwell, env: Mapping[str, str]) -> None:
    upwell("remember", "The settlement was postponed in March", env=env)
    hits = upwell("recall", "settlement", "--json", env=env).json["hits"]
    assert {hit["source"] for hit in hits} == {"", "qmd://notes/billing.md"}
    assert json.loads(upwell("doctor", "--json", env=env).out)["parts"]["qmd"]["ok"] is True


def test_when_qmd_fails_the_rest_is_searched_and_doctor_reports_the_failure(
    upwell: Upwell, env: Mapping[str, str]
) -> None:
    upwell("remember", "The settlement was postponed in March", env=env)
    broken = {**env, "FAKE_QMD": "crash"}
    (hit,) = upwell("recall", "settlement", "--json", env=broken).json["hits"]
    assert "postponed" in hit["text"]
    done = upwell("doctor", "--json", env=broken)
    assert done.code == 1
    assert "instead: documents" in json.loads(done.out)["parts"]["qmd"]["detail"]


@pytest.mark.parametrize("how", ["crash", "hang"])
def test_when_qmd_fails_the_agent_and_the_user_are_told(
    upwell: Upwell, gateway: Gateway, env: Mapping[str, str], how: str
) -> None:
    broken = {**env, "FAKE_QMD": how, "UPWELL_SURFACE__TIMEOUT_SECONDS": "2"}
    question = "when does the settlement job run?"
    shown = upwell("context", question, "--format", "json", env=broken)
    (missing,) = json.loads(shown.out)["missing"]
    assert missing.startswith("qmd: ")
    assert missing.endswith("; documents searched instead")
    assert f"not searched: {missing}" in upwell("explain", "-n", "1", env=broken).out
    assert "qmd" in upwell("stats", "--json", env=broken).json["missing"]
    found = everything(gateway({}, env=broken).call("upwell__memory_search", query=question))
    assert "Nothing is remembered about" in found
    assert "[upwell] searched without qmd: " in found


def test_an_agent_reads_a_passage_by_its_cited_address(
    gateway: Gateway, env: Mapping[str, str]
) -> None:
    peer = gateway({}, env=env)
    result = everything(
        peer.call("upwell__memory_search", query="when does the settlement job run")
    )
    assert "[qmd://notes/billing.md#L" in result
    id = result.split("id ")[1].split(")")[0]
    assert FACT in everything(peer.call("upwell__memory_get", id=id))
    digest = everything(
        peer.call("upwell__memory_context", message="when does the settlement job run?")
    )
    cited = digest[digest.index("[qmd://") : digest.index("]") + 1]
    assert FACT in everything(peer.call("upwell__memory_get", path=cited))
    shown = peer.call("upwell__memory_context", message="settlement job run?", format="json")
    assert "qmd: settlement" in json.loads(everything(shown))["queriesRun"]
    listed = peer.result("resources/read", {"uri": "upwell://search/settlement%20job"})
    (memory,) = json.loads(listed["contents"][0]["text"])["memories"]
    (content,) = peer.result("resources/read", {"uri": memory["uri"]})["contents"]
    assert FACT in json.loads(content["text"])["text"]


def test_an_unknown_backend_is_a_clear_error(upwell: Upwell) -> None:
    done = upwell("recall", "x", env={"UPWELL_MEMORY__BACKEND": "elastic"})
    assert done.code == 1
    assert "memory.backend" in done.err
