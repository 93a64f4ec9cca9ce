"""The state of the last work, as a text."""

import pytest

from upwell.ground.types.memory import STATE, Trust
from upwell.sessions.record import MAX_CHARS, Facts, RecordedRequest, SessionRecord, state_of

HOUR = 3600.0


def test_the_facts_and_the_last_words() -> None:
    done = Facts(
        changed=("src/pump.py",),
        checks={"make test": False},
        commits=("1a2b3c4 Oil the pump",),
        branches=("fix/pump", "main"),
        tickets=("45",),
        pulls=("12",),
    )
    request = RecordedRequest(
        0, 0.0, "Why does the pump stall?", "A shell blocked the inlet.", done
    )
    memory = state_of(SessionRecord("s", "claude", "/h", 0.0, (request,)), 4 * HOUR)
    assert memory.text == (
        "4 hours ago a session (claude) was asked “Why does the pump stall?”. It changed "
        "src/pump.py; committed 1a2b3c4 Oil the pump on branch fix/pump; opened or used PR #12; "
        "left `make test` failing. Its conclusion: “A shell blocked the inlet.”"
    )
    assert (memory.id, memory.namespace, memory.source) == ("state:s", "state", "session:s")
    assert (memory.provenance.door, memory.provenance.session) == (STATE, "s")
    assert (memory.symbols, memory.tags, memory.paths) == (
        ("45", "#12"),
        ("fix/pump",),
        ("src/pump.py",),
    )
    assert memory.trust is Trust.AGENT
    assert memory.created_at == memory.updated_at == 0.0


def test_long_facts_leave_the_text_short() -> None:
    many = Facts(changed=tuple(f"a/long/folder/with/file{n}.py" for n in range(24)))
    request = RecordedRequest(0, 0.0, "word " * 200, "Fixed the pump in pump.py. " * 30, many)
    text = state_of(SessionRecord("s", "claude", "/h", 0.0, (request,)), HOUR).text
    assert len(text) <= MAX_CHARS
    assert "and 20 more" in text


@pytest.mark.parametrize(
    "question",
    [
        "Implement the following plan:\n\n# Plan: Oil the pump\n\n## Context",
        "Implement the following plan: Plan: Oil the pump",
    ],
)
def test_a_plan_is_named_by_its_heading(question: str) -> None:
    request = RecordedRequest(0, 0.0, question, "", Facts())
    text = state_of(SessionRecord("s", "", "/h", 0.0, (request,)), HOUR).text
    assert text == "60 minutes ago a session (agent) was asked “Plan: Oil the pump”."


def corrected(facts: Facts) -> SessionRecord:
    return SessionRecord(
        "s", "claude", "/h", 0.0,
        (
            RecordedRequest(0, 0.0, "Retry how often?", "I set MAX_ATTEMPTS to 5.", facts),
            RecordedRequest(1, 1.0, "Seven. Eight trips it.", "I set MAX_ATTEMPTS to 7.", facts),
        ),
    )  # fmt: skip


def test_what_became_of_the_first_request_stands_at_the_end() -> None:
    session = corrected(Facts(changed=("retry.py",)))
    text = state_of(session, HOUR, session.requests[0]).text
    assert text.index("to 7") < text.index("to 5")


def test_of_a_discussion_only_what_it_came_to_is_told() -> None:
    session = corrected(Facts())
    text = state_of(session, HOUR, session.requests[0]).text
    assert "to 7" in text
    assert "to 5" not in text
