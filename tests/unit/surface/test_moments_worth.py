"""The documentation and the commits that are worth giving at a prompt, and why others are not."""

import pytest

from upwell.ground.types.memory import Hit, Memory
from upwell.surface import moments
from upwell.surface.moments import Moment, gives_reason, has_sentence, is_paper, lack_of

PROSE = "Retries: The pump controller retries a failed valve command three times before it stops."
REASON = (
    "Reuse the key of a charge in every attempt. A retry sent a new key, so the provider could not "
    "see that both attempts were one order, and a customer was charged twice because of that."
)


def passage(source="docs/pumps.md", text=PROSE, score=0.6):
    return Hit(memory=Memory(text=text, source=source, lines=(3, 4)), score=score)


def commit(text=REASON, score=0.9):
    return Hit(memory=Memory(text=text, source="git:0123456789ab"), score=score)


def lack(text, hit, prompts=1):
    moment = Moment.QUESTION if "?" in text else Moment.FIRST_REQUEST
    return lack_of(text, moment, prompts, hit)


@pytest.mark.parametrize(
    "text",
    [
        "how often does the controller retry a valve command?",
        "the controller should retry a valve command only once",
        "valve command retries",
        "GET http://localhost:8000/valves retries the valve command",
    ],
)
def test_a_first_prompt_about_the_documented_matter_is_answered(text):
    assert lack(text, passage()) == ""


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("can you check how often the controller retries?", moments.INSTRUCTION),
        ("The retries look odd. Let's refactor the controller", moments.INSTRUCTION),
        ("please implement valve retries", moments.INSTRUCTION),
        ("is https://example.org/pull/7 about valve retries?", moments.POINTER),
        ("are the valve retries in @pumps.md right?", moments.POINTER),
        ("does PR #88 change the valve retries?", moments.POINTER),
        ("do the retries work on this branch?", moments.POINTER),
        ("retry " * 61, moments.LONG),
    ],
)
def test_an_instruction_or_a_pointer_gets_no_documentation(text, missing):
    assert lack(text, passage(score=0.95)) == missing


def test_in_the_middle_of_a_session_only_a_sure_answer_to_a_question_surfaces():
    question = "how often does the controller retry a valve command?"
    assert lack(question, passage(score=0.79), prompts=2) == moments.MIDDLE
    assert lack(question, passage(score=0.8), prompts=2) == ""
    assert lack("why do you retry it?", passage(score=0.9), prompts=2) == moments.MIDDLE
    assert lack("valve command retries", passage(score=0.9), prompts=2) == moments.MIDDLE


def test_a_low_score_is_named():
    assert lack("valve command retries", passage(score=0.3)) == "score 0.30 < 0.50"


@pytest.mark.parametrize(
    "source",
    [
        "CHANGELOG.md",
        "docs/history/pumps.md",
        "process/tasks/012/spec.md",
        "docs/VALVE_TEST_REPORT.md",
        "notes/2026-01-31-valves.md",
        "docs/projects/valves/tasks.md",
    ],
)
def test_papers_of_the_work_are_not_documentation(source):
    assert is_paper(source)
    assert lack("valve command retries", passage(source)) == moments.PAPER


@pytest.mark.parametrize("source", ["README.md", "docs/background-tasks.md", "docs/planning.md"])
def test_documentation_is_not_a_paper(source):
    assert not is_paper(source)


def test_a_note_on_how_to_work_answers_questions_only():
    note = passage("CONTRIBUTING.md")
    assert lack("valve command retries", note) == moments.HOW_TO_WORK
    assert lack("how is a valve command retried?", note) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PROSE, True),
        ("Valves:\n- the controller retries a failed valve command three times at most\n", False),
        ("| valve | the controller retries a failed command three times |", False),
        ("```\nthe controller retries a failed valve command three times at most\n```", False),
        ("Short. Too short.", False),
    ],
)
def test_a_passage_needs_one_whole_sentence(text, expected):
    assert has_sentence(text) is expected


def test_a_commit_answers_a_question_for_its_reason():
    assert lack("why was the customer charged twice?", commit()) == ""
    assert lack("how is a customer charged?", commit()) == moments.NO_WHY
    assert lack("why was the customer charged twice?", commit(), prompts=2) == moments.MIDDLE
    assert (
        lack("why was the customer charged twice?", commit("Fix the charge")) == moments.NO_REASON
    )
    assert not gives_reason("Add buttons. " + "More buttons in the dialog of the page. " * 5)


def test_a_note_lacks_nothing():
    note = Hit(memory=Memory(text="valves close at night"), score=0.5)
    assert lack("can you check the valves?", note, prompts=9) == ""
