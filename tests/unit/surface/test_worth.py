"""The documentation and the commits that are worth giving at a prompt, and why others are not."""

import pytest

from upwell.ground.types.cue import Moment
from upwell.ground.types.memory import Hit, Memory
from upwell.surface import worth
from upwell.surface.worth import gives_reason, has_sentence, is_paper, lack_of

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
        ("can you check how often the controller retries?", worth.INSTRUCTION),
        ("The retries look odd. Let's refactor the controller", worth.INSTRUCTION),
        ("please implement valve retries", worth.INSTRUCTION),
        ("is https://example.org/pull/7 about valve retries?", worth.POINTER),
        ("are the valve retries in @pumps.md right?", worth.POINTER),
        ("does PR #88 change the valve retries?", worth.POINTER),
        ("do the retries work on this branch?", worth.POINTER),
        ("retry " * 61, worth.LONG),
    ],
)
def test_an_instruction_or_a_pointer_gets_no_documentation(text, missing):
    assert lack(text, passage(score=0.95)) == missing


def test_in_the_middle_of_a_session_only_a_sure_answer_to_a_question_surfaces():
    question = "how often does the controller retry a valve command?"
    assert lack(question, passage(score=0.79), prompts=2) == worth.MIDDLE
    assert lack(question, passage(score=0.8), prompts=2) == ""
    assert lack("why do you retry it?", passage(score=0.9), prompts=2) == worth.MIDDLE
    assert lack("valve command retries", passage(score=0.9), prompts=2) == worth.MIDDLE


def test_a_document_that_nobody_asked_for_has_to_fit_better():
    assert lack("valve command retries", passage(score=0.55)) == "score 0.55 < 0.60"
    assert lack("how often does it retry a valve command?", passage(score=0.55)) == ""


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
        ".changeset/brave-valves.md",
        ".agents/.plans/valves.md",
        ".github/PULL_REQUEST_TEMPLATE.md",
    ],
)
def test_papers_of_the_work_are_not_documentation(source):
    assert is_paper(source)
    assert lack("valve command retries", passage(source)) == worth.PAPER


@pytest.mark.parametrize("source", ["README.md", "docs/background-tasks.md", "docs/planning.md"])
def test_documentation_is_not_a_paper(source):
    assert not is_paper(source)


def test_a_note_on_how_to_work_answers_questions_only():
    note = passage("CONTRIBUTING.md")
    assert lack("valve command retries", note) == worth.HOW_TO_WORK
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
    assert lack("how is a customer charged?", commit()) == worth.NO_WHY
    assert lack("why was the customer charged twice?", commit(), prompts=2) == worth.MIDDLE
    assert lack("why was the customer charged twice?", commit("Fix the charge")) == worth.NO_REASON
    assert not gives_reason("Add buttons. " + "More buttons in the dialog of the page. " * 5)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("which port does the tide gauge use?", "Move the tide gauge to port 7443. It was taken."),
        ("where do I set the gauge key to connect?", "Read TIDE_GAUGE_KEY from the environment."),
        ("ok, and which queue does the mailer use?", "feat: use Redis as the queue of the mailer"),
        ("when did we switch to pnpm?", "chore: move from npm to pnpm"),
        ("does it support windows?", "fix: support the paths of Windows"),
        ("is it possible to export the berths as csv?", "feat: export berths as CSV"),
        ("¿dónde está la clave del gauge?", "La clave del gauge está en `gauge.env`."),
    ],
)
def test_a_commit_that_states_the_fact_answers_the_question(question, message):
    assert lack(question, commit(message)) == ""
    assert lack(question, commit(message), prompts=5) == ""
    assert lack(question, commit(message, score=0.7)) != ""


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (
            "which port does the tide gauge use?",
            "Draw the tide gauge beside the port of the ferry.",
        ),
        ("which port does the tide gauge use?", "Move the crane to port 7443."),
        ("which port does the tide gauge use?", "Close the port of the tide gauge (#7443)."),
        ("where do I set the gauge key?", "Rotate the key of the gauge every night."),
        ("when did we switch to pnpm?", "docs: mention pnpm in the readme"),
        ("when did we switch to pnpm?", "ci: drop pnpm from the matrix"),
        ("does it support windows?", "feat: open the windows of the bridge"),
        ("what types of cranes are there?", "feat: let the Demag crane lift two boxes at once"),
        ("does that gauge support windows?", "fix: support Windows in the gauge"),
        ("is there a list to update for the gauge?", "fix: update the gauge after midnight"),
        ("how do I add a berth?", "feat: add a berth with `harbour berth add`"),
        ("what is the crane?", "feat: let the crane lift two boxes of 12 tonnes"),
        ("do you know the port of the tide gauge in staging?", "Move the tide gauge to port 7443."),
        ("add a port to the tide gauge", "Move the tide gauge to port 7443."),
    ],
)
def test_a_commit_that_only_shares_words_answers_nothing(question, message):
    assert lack(question, commit(message), prompts=2) != ""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("use the local clock because the gauge has none", True),
        ("build: pin tidelib: 2.0 breaks the gauge", True),
        ("retry the upload to avoid a lost reading", True),
        ("read the gauge twice — the first value is not settled", True),
        ("fix: the gauge breaks after midnight", False),
        ("fix(gauge): prevent a crash", False),
        ("use tabs: spaces break", False),
        ("feat: draw the gauge beside the ferry", False),
    ],
)
def test_a_reason_may_stand_in_the_subject(message, expected):
    assert gives_reason(message) is expected


def test_a_note_lacks_nothing():
    note = Hit(memory=Memory(text="valves close at night"), score=0.5)
    assert lack("can you check the valves?", note, prompts=9) == ""
