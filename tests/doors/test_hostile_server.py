"""Everything that a server can do wrong: more than sixty ways, one at a time and all at once. Each
request gets exactly one answer (the peer fails on a second one), and the others go on."""

import time

import pytest

from tests.doors.peer import Peer
from tests.doors.reading import complaint, everything
from tests.doors.test_faults import CALL_SECONDS, back_again, call, pair

__all__ = ["pair"]


DEATHS = {
    "die_leaving_a_child": "exit code 7",
    "end_well": "exit code 0",
    "kill_itself": "signal SIGKILL",
    "close_stdout": "it closed its output",
}


@pytest.mark.parametrize("tool", DEATHS)
def test_every_end_is_noticed_and_named_at_once(pair: Peer, tool: str) -> None:
    began = time.monotonic()
    said = complaint(call(pair, tool))
    assert time.monotonic() - began < CALL_SECONDS * 0.9
    assert "'bad'" in said
    assert DEATHS[tool] in said
    back_again(pair)


ANSWERED = {
    "early": "in time",
    "id_as_text": "right id",
    "two_ids": "mine",
    "odd_line_ends": "with a mark",
    "odd_notices": "after the notices",
    "cancels": "answered all the same",
    "notice_flood": "after the notices",
    "change_flood": "after the changes",
    "question_flood": "300 answers",
}


@pytest.mark.parametrize("tool", ANSWERED)
def test_what_is_odd_but_answers_is_answered(pair: Peer, tool: str) -> None:
    for _ in range(2):
        assert everything(pair.call(f"bad__{tool}", 20)) == ANSWERED[tool]
    assert everything(pair.call("bad__ok")) == "fine"
