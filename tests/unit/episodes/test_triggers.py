"""An event and a place share a key if the place answers the event, and only then."""

import pytest
from tests.unit.episodes.events import call, prompt, shell

from upwell.episodes.triggers import at_missing, of_place, triggers_of


@pytest.mark.parametrize(
    ("missing", "place"),
    [
        ("app/commands/resume.go", "app/resume.go"),
        ("app/agent/claude.go", "app/agent/code/claude.go"),
        ("code/claude.go", "app/agent/code/claude.go"),
        ("app/setup_command_test.go", "app/integration/setup_command_test.go"),
        (".kilnrc.yml", ".kilnrc.yaml"),
        ("web/kiln.config.js", "web/kiln.config.ts"),
    ],
)
def test_a_wrong_guess_shares_a_trigger_with_the_place(missing: str, place: str) -> None:
    assert set(at_missing(missing)) & set(of_place(place))


@pytest.mark.parametrize(
    ("missing", "place"),
    [
        ("app/agent/common.go", "app/store/common.go"),
        ("app/agent/code/agent.go", "app/agent/agent.go"),
        ("app/session/session.go", "app/session.go"),
        ("src/routes/index.ts", "src/index.ts"),
        ("docs/README.md", "README.md"),
        ("app/resume.go", "app/resume.py"),
    ],
)
def test_a_common_name_elsewhere_shares_no_trigger(missing: str, place: str) -> None:
    assert not set(at_missing(missing)) & set(of_place(place))


def test_most_events_have_no_trigger() -> None:
    assert triggers_of(shell("ls", "a\nb")) == ()
    assert triggers_of(call("Read", "text", file_path="/p/a.py")) == ()
    assert triggers_of(prompt("go on")) == ()


def test_a_prompt_has_the_tickets_that_it_is_about() -> None:
    assert triggers_of(prompt("continue with task #045 please")) == ("ticket:45",)
    assert triggers_of(prompt("fix ENG-7, see #120")) == ("ticket:ENG-7", "ticket:120")


@pytest.mark.parametrize(
    "text",
    [
        "take #3 of your list",
        "use UTF-8 and SHA-256",
        "task 1, task 2 and task 3",
        "a" * 700 + " #45",
    ],
)
def test_other_numbers_are_not_tickets(text: str) -> None:
    assert triggers_of(prompt(text)) == ()
