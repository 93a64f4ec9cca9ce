"""How much the record of a past session bears on a prompt."""

import pytest

from upwell.sessions.recall import Words, is_superseded, past_of, resumes, taken_up
from upwell.sessions.record import Facts, RecordedRequest, SessionRecord

HOUR = 3600.0


def past(name: str, question: str, conclusion: str = "", ended: float = 0.0, **facts: object):
    request = RecordedRequest(0, ended, question, conclusion, Facts(**facts))
    return past_of(SessionRecord(name, "claude", "/h", ended, (request,)))


PUBLISH = past(
    "publish",
    "publish to npm failed",
    "release.yml now calls publish.yml as a reusable workflow.",
    changed=(".github/workflows/release.yml", ".github/workflows/publish.yml"),
    tickets=("1263",),
    branches=("fix/release", "main"),
)
OTHERS = [
    past("docs", "update the README and its badges", "The README has three badges."),
    past("login", "the login form rejects long names", "The limit is 80 now."),
]


def score(prompt: str, hours: float = 4.0, *, is_first: bool = True) -> float:
    everything = [PUBLISH, *OTHERS]
    words = Words(prompt, everything)
    _, relation = words.relation_of(PUBLISH, 0, hours * HOUR, 1 if is_first else 2)
    return relation.score


@pytest.mark.parametrize(
    "prompt",
    [
        "add a dark mode to the settings page",
        "run the tests",
        "what is a monad?",
        "commit and push",
    ],
)
def test_any_other_prompt_gets_nothing(prompt: str) -> None:
    assert score(prompt) < 0.2


def test_only_the_last_work_is_resumed_and_only_at_a_first_prompt() -> None:
    assert score("please continue") > 0.5
    assert score("please continue", is_first=False) == 0.0
    assert score("please continue", 24 * 10.0) == 0.0
    assert resumes("sigamos con lo de ayer")
    assert resumes("mach weiter")
    assert not resumes("the build does not continue after the first error")


def test_a_later_session_on_the_same_files_supersedes() -> None:
    changed = PUBLISH.record.changed
    later = past("later", "and again", changed=changed)
    assert is_superseded(PUBLISH, [later])
    assert not is_superseded(PUBLISH, OTHERS)
    assert not is_superseded(past("talk", "why?"), [later])


AGREED = past(
    "agreed",
    "what does overage_charge bill?",
    "Settled: overage_charge bills whole blocks of fifty units, rounded up, times block_fee.",
)


def test_what_was_agreed_is_told_when_work_of_that_age_is_not() -> None:
    prompt = "overage_charge bills customers for units below a block"

    def after_months(session: object) -> float:
        words = Words(prompt, [session, *OTHERS])
        return words.relation_of(session, 0, 2400 * HOUR, 1)[1].score

    worked = past("worked", AGREED.record.requests[0].question,
                  AGREED.record.requests[0].conclusion, changed=("billing.py",))  # fmt: skip
    assert after_months(AGREED) >= 0.5 > after_months(worked)


def test_a_later_discussion_takes_an_earlier_one_up() -> None:
    amended = past(
        "amended",
        "amend the policy of overage_charge",
        "overage_charge bills blocks of fifty units rounded up after 25 free units, at block_fee.",
        ended=HOUR,
    )
    known = [amended, *OTHERS, AGREED]
    assert taken_up(known, 3) is amended
    assert taken_up([*OTHERS, AGREED], 2) is None
    assert taken_up([PUBLISH, AGREED], 1) is None


def test_the_next_request_of_a_conversation_is_told_no_state() -> None:
    assert score("so does publishing to npm with publish.yml work?", is_first=False) < 0.5
