"""context: the memories for a message, or the reason for silence."""

from pathlib import Path

import pytest

from tests.conftest import Upwell

CONTEXT = {"applicable", "found", "confidence", "digest", "entries", "queriesRun"}


def test_context_answers_a_question(upwell: Upwell) -> None:
    id = upwell("remember", "The tide service listens on port 7431").line
    upwell("remember", "Bread needs salt")
    question = "Which port does the tide service listen on?"
    result = upwell("context", question, "--format", "json").json
    assert set(result) >= CONTEXT
    assert result["found"] is True
    assert result["applicable"] is True
    assert 0 <= result["confidence"] <= 1
    assert [entry["id"] for entry in result["entries"]] == [id]
    assert result["queriesRun"]
    assert result["surfacing_id"]
    assert "7431" in result["digest"]
    digest = upwell("context", question)
    assert "7431" in digest.out
    assert "Bread" not in digest.out
    assert "1 memory for an explicit question; unasked, a new session would get 1" in digest.err
    prompted = upwell("context", question, "--door", "prompt").err
    assert "likely enough to be relevant" in prompted


def test_the_number_and_the_scores_are_those_of_a_hook(upwell: Upwell) -> None:
    for colour in ("red", "green", "blue", "grey"):
        upwell("remember", f"The tide service of the {colour} pier listens on port 7431")
    question = "Which port does the tide service listen on?"
    told = upwell("context", question).err.splitlines()
    assert "4 memories for an explicit question; unasked, a new session would get 2" in told[0]
    prompted = upwell("context", question, "--door", "prompt", "--json").json["entries"]
    assert len(prompted) == 2
    assert told[1].startswith(f"  1. {prompted[0]['score']:.2f}: ")
    unlikely = upwell("context", "Which port does the mayor of Lima prefer?").err.splitlines()
    assert "unasked, a new session would get none (below_min_score" in unlikely[0]
    assert float(unlikely[1].split()[1].rstrip(":")) < 0.5


@pytest.mark.parametrize("message", ["hello", "thanks!", "ok", "What is the capital of Peru?"])
def test_context_is_silent_without_a_relevant_memory(upwell: Upwell, message: str) -> None:
    upwell("remember", "The tide service listens on port 7431")
    result = upwell("context", message, "--door", "prompt", "--format", "json").json
    assert result["found"] is False
    assert result["entries"] == []
    assert result["skippedReason"]


def test_asking_twice_is_answered_twice(upwell: Upwell) -> None:
    upwell("remember", "The tide service listens on port 7431")
    question = "Which port does the tide service listen on?"
    for _ in range(2):
        assert "7431" in upwell("context", question, "--session", "s").out


def test_a_prompt_gets_no_memory_twice(upwell: Upwell) -> None:
    upwell("remember", "The tide service listens on port 7431")
    args = ("context", "Which port does the tide service listen on?", "--door", "prompt")
    first = upwell(*args, "--session", "s", "--format", "json").json
    second = upwell(*args, "--session", "s", "--format", "json").json
    assert first["found"] is True
    assert second["found"] is False


def test_a_project_does_not_see_another_one(upwell: Upwell, tmp_path: Path) -> None:
    """`recall` searches every project; `context` only the current one."""
    here, other = tmp_path / "here", tmp_path / "there"
    for project in (here, other):
        (project / ".git").mkdir(parents=True)
    upwell("remember", "The tide service listens on port 7431", cwd=here)
    question = "Which port does the tide service listen on?"
    assert "7431" in upwell("context", question, cwd=here).out
    assert "7431" not in upwell("context", question, cwd=other).out
    assert len(upwell("recall", "tide service port", "--json", cwd=other).json["hits"]) == 1


def test_a_session_begins_with_the_rules_and_notes_of_its_project(
    upwell: Upwell, tmp_path: Path
) -> None:
    here, other = tmp_path / "here", tmp_path / "there"
    for project in (here, other):
        (project / ".git").mkdir(parents=True)
    upwell("remember", "Never force-push to main", "--pin", cwd=here)
    upwell("remember", "The tide service listens on port 7431", cwd=here)
    upwell("remember", "Bread needs salt", cwd=other)
    begin = ("context", "--door", "session")
    rules = upwell(*begin, cwd=here).out
    assert "force-push" in rules
    assert "7431" not in rules
    everything = {"UPWELL_SURFACE__MOMENTS": "all"}
    output = upwell(*begin, cwd=here, env=everything).out
    assert "force-push" in output
    assert "7431" in output
    assert "Bread" not in output
    assert len(output.encode()) <= 1201
    in_session = (*begin, "--session", "s", "--json")
    first = upwell(*in_session, cwd=here, env=everything).json
    again = upwell(*in_session, cwd=here, env=everything).json
    assert len(first["entries"]) == 2
    assert [entry["pinned"] for entry in again["entries"]] == [True]


def test_context_needs_a_message(upwell: Upwell) -> None:
    assert upwell("context").code == 2


def test_a_memory_is_read_by_the_address_in_its_citation(upwell: Upwell) -> None:
    id = upwell("remember", "The tide service listens on port 7431").line
    for citation in (f"upwell://memory/{id}", f"[upwell://memory/{id}]", id, f"stm:{id}"):
        assert upwell("read", citation).line == "The tide service listens on port 7431"
    assert upwell("read", "upwell://memory/unknown").code == 2
