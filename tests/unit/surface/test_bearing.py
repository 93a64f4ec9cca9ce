"""Bearing: which lessons a prompt, a failure, a missing file or an opened file brings up."""

from collections.abc import Sequence

import pytest

from upwell.ground.types.memory import LESSON, Memory, Provenance
from upwell.surface.bearing import Bearing, Book, prepared, prompt_of

NOTHING: frozenset[str] = frozenset()


def lesson(identity: str, kind: str, text: str, *tags: str, session: str = "s1") -> Memory:
    return Memory(
        id=identity,
        text=text,
        tags=tags,
        paths=tuple(tag for tag in tags if "/" in tag and " " not in tag),
        provenance=Provenance(door=LESSON, tool=kind, session=session),
    )


TIDES = lesson(
    "tides",
    "decision",
    "Tide tables come from the harbour office's feed (#412); the scraper was removed.",
    *("tide table", "harbour feed", "#412", "TIDE_FEED_URL"),
)
MIGRATE = lesson(
    "migrate",
    "error_fix",
    "`quayctl migrate` stops with ELOCKED while the berth server runs: stop it first.",
    *("quayctl migrate", "ELOCKED", "relation berths is locked by another process"),
)
ANCHORS = lesson(
    "anchors",
    "pitfall",
    "Two modules write anchor logs; change src/anchors/log.py and src/crew/log.py together.",
    *("anchor log", "src/anchors/log.py"),
)
CREW = lesson(
    "crew",
    "place",
    "roster.py moved to src/crew/shifts/roster.py when shifts became a package.",
    *("roster.py", "src/crew/shifts/roster.py", "turnos de la tripulación"),
)
OTHERS = [
    lesson(f"other{number}", "decision", f"The {word} page shows one {word} in each row.", word)
    for number, word in enumerate(("lantern", "buoy", "ferry", "crane", "pier", "rope"))
]
BOOK = Book([prepared(each) for each in (TIDES, MIGRATE, ANCHORS, CREW, *OTHERS)])


def worthy(bearings: Sequence[Bearing]) -> list[str]:
    ordered = sorted(bearings, key=lambda bearing: -bearing.weight)
    return [bearing.lesson.memory.id for bearing in ordered if bearing.weight >= 1]


def at_prompt(text: str, known: frozenset[str] = NOTHING) -> list[str]:
    return worthy(BOOK.at_prompt(prompt_of(text, known)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("where does the tide table get its data?", ["tides"]),
        ("cambia los turnos de la tripulación del domingo", ["crew"]),
        ("close https://github.com/acme/quay/issues/412 please", ["tides"]),
        ("what should I set the tide feed to?", ["tides"]),
        ("close https://github.com/acme/quay/issues/413 please", []),
        ("the table on the start page is too wide", []),
        ("please continue", []),
    ],
)
def test_a_prompt_brings_up_the_lesson_that_its_words_name(text: str, said: list[str]) -> None:
    assert at_prompt(text) == said


def test_a_word_that_most_lessons_share_brings_up_none() -> None:
    assert at_prompt("which page has one row?") == []


def test_in_a_session_on_the_same_subject_it_is_no_news() -> None:
    first = prompt_of("rebuild the tide table for the harbour feed", NOTHING)
    known = frozenset(first.text.stems)
    assert at_prompt("rebuild the tide table for the harbour feed") == ["tides"]
    assert at_prompt("make the tide table wider", known) == []


def test_a_later_request_needs_more_than_a_later_question() -> None:
    known = frozenset({"lighthous", "paint", "white"})
    assert at_prompt("which harbour feed do we use", known) == ["tides"]
    assert at_prompt("show the harbour feed in bold letters on top", known) == []


@pytest.mark.parametrize(
    "text",
    [
        "Plan: " + "move the berth list to a new view and keep the old one. " * 40 + "tide table",
        "TypeError: tide table is undefined\n    at feed (src/tides.ts:12:7)",
    ],
)
def test_a_plan_and_a_paste_bring_their_own_context(text: str) -> None:
    assert at_prompt(text) == []


def test_a_plan_still_brings_up_what_goes_wrong_with_an_error_it_quotes() -> None:
    plan = "Plan: " + "move the berth list to a new view and keep the old one. " * 40
    assert at_prompt(f"{plan} Then relation berths is locked by another process.") == ["migrate"]


def test_a_plan_brings_up_a_command_that_does_not_work_here() -> None:
    known = lesson(
        *("compose", "environment", "No Docker here: `quay compose config -q` cannot run."),
        "quay compose config -q",
    )
    plan = prompt_of(
        "Plan: " + "move the list to a view. " * 80 + "quay compose config -q", NOTHING
    )
    assert worthy(Book([prepared(known)]).at_prompt(plan)) == ["compose"]


def at_failure(command: str, output: str, noise: frozenset[str] = NOTHING) -> list[str]:
    return worthy(BOOK.at_failure(command, output, noise))


LOCKED = "error: relation berths is locked by another process"


@pytest.mark.parametrize(
    ("command", "output", "said"),
    [
        ("quayctl migrate", LOCKED, ["migrate"]),
        ("make deploy", LOCKED, ["migrate"]),
        ("quayctl migrate", "ELOCKED", ["migrate"]),
        ("make deploy", "ELOCKED", []),
        ("quayctl migrate", "error: column berth_no does not exist", []),
        ("pytest", "src/anchors/log.py:12: AssertionError", []),
        ("make deploy", "$ quayctl migrate\nexit code 1", []),
    ],
)
def test_a_failure_brings_up_the_lesson_that_quotes_its_error(
    command: str, output: str, said: list[str]
) -> None:
    assert at_failure(command, output) == said


def test_an_error_that_any_program_reports_brings_up_nothing() -> None:
    general = lesson("general", "environment", "Two roots.", "No such file or directory")
    book = Book([prepared(general)])
    assert book.at_failure("cat x", "cat: x: No such file or directory") == []


def test_an_error_that_also_follows_success_is_noise() -> None:
    noise = BOOK.noise_in("ok\nwarning: relation berths is locked by another process")
    assert at_failure("make deploy", LOCKED, frozenset(noise)) == []


def test_a_decision_does_not_mend_a_failure() -> None:
    decided = lesson("decided", "decision", "Keep it.", "relation berths is locked by another")
    assert Book([prepared(decided)]).at_failure("make", LOCKED) == []


def test_a_missing_file_brings_up_where_it_went() -> None:
    assert worthy(BOOK.at_absence("roster.py")) == ["crew"]
    assert worthy(BOOK.at_absence("log.py")) == ["anchors"]
    assert worthy(BOOK.at_absence("berths.py")) == []


@pytest.mark.parametrize(
    ("file", "request_", "said"),
    [
        ("/r/src/anchors/log.py", "write the anchor log in UTC", ["anchors"]),
        ("/r/src/anchors/log.py", "rename the lantern page", []),
        ("/r/src/crew/shifts/log.py", "write the anchor log in UTC", []),
    ],
)
def test_a_file_brings_up_a_warning_about_what_the_user_asked_for(
    file: str, request_: str, said: list[str]
) -> None:
    assert worthy(BOOK.at_file(file, prompt_of(request_, NOTHING))) == said


def test_a_sibling_is_of_the_same_session_and_subject() -> None:
    parts = [
        lesson("a", "decision", "Fees are rounded up.", "fee_of", "rounding"),
        lesson("b", "decision", "Fees never exceed a day's rate.", "fee_of", "cap"),
        lesson("c", "decision", "Fees are in cents.", "fee_of", session="s2"),
        lesson("d", "decision", "Ropes are blue.", "rope"),
    ]
    book = Book([prepared(each) for each in parts])
    bearings = [Bearing(each, 2.0) for each in book.lessons]
    siblings = book.siblings(bearings[0], bearings)
    assert [sibling.lesson.memory.id for sibling in siblings] == ["b"]


def test_a_short_question_that_quotes_an_error_is_a_question() -> None:
    assert at_prompt("error: TIDE_FEED_URL is not set, which tide table is read?") == ["tides"]


def test_pasted_output_brings_the_lesson_that_quotes_its_error() -> None:
    output = f"{LOCKED}\n" + "  at berth.lock (src/berths/lock.ts:12:3)\n" * 8
    assert at_prompt(output) == ["migrate"]


def test_a_session_that_taught_much_on_one_thing_does_not_make_it_common() -> None:
    name = "`dredge_plan` keeps two metres below the keel; deeper was rejected."
    more = [
        lesson(f"more{n}", "state", f"`dredge_plan` is open: {word}.", "dredge_plan")
        for n, word in enumerate(("costs", "dates", "maps"))
    ]
    book = Book([prepared(each) for each in (lesson("keel", "decision", name, "dredge_plan"),
                                             *more, *OTHERS)])  # fmt: skip
    assert book.rarity("dredg") == 1.0


def test_a_name_as_written_counts_in_a_long_request() -> None:
    about = lesson("keel", "decision", "`dredge_plan` keeps two metres.", "dredge_plan",
                   session="s2")  # fmt: skip
    book = Book([prepared(each) for each in (about, TIDES, MIGRATE, *OTHERS)])
    story = "Since the survey boats came back, skippers complain that channels look too shallow. "
    prompt = prompt_of(f"{story}Please mend dredge_plan, without breaking anything.", NOTHING)
    assert "keel" in worthy(book.at_prompt(prompt))
