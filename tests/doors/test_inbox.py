"""The inbox on a terminal, where a user presses keys, and its bulk verbs without a terminal."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.doors.hooked import House
from tests.doors.terminal import typed
from upwell.capture.inbox import WHY_COMMAND, WHY_RULE, Inbox, Proposal, inbox_at

INBOX = [sys.executable, "-P", "-m", "upwell", "inbox"]
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "house")


@pytest.fixture
def box(house: House) -> Inbox:
    house.home.mkdir(mode=0o700, exist_ok=True)
    return inbox_at(house.home / "inbox.json")


def rule(house: House, text: str, project: str = "") -> Proposal:
    return Proposal(
        text=text,
        source="session:s1",
        why=WHY_RULE,
        project=project or str(house.project),
        session="s1",
        at=1_767_000_000.0,
    )


def command(house: House, text: str, triggers: tuple[str, ...] = ("fails:bake:1",)) -> Proposal:
    return Proposal(
        text=text,
        source="session:s1",
        why=WHY_COMMAND,
        triggers=triggers,
        paths=("oven.py",),
        project=str(house.project),
        session="s1",
        occurrences=3,
    )


def press(house: House, *keys: str, args: tuple[str, ...] = (), editor: str = "") -> str:
    return typed([*INBOX, *args], keys, {**house.environment, "EDITOR": editor}, cwd=house.project)


def texts(house: House, verb: str) -> list[str]:
    listed = json.loads(house.upwell(verb, "--json"))
    return sorted(item["text"] for item in next(iter(listed.values())))


def test_a_user_decides_about_one_proposal_at_a_time(house: House, box: Inbox) -> None:
    box.propose(
        [
            rule(house, "Bake with the lid on."),
            command(house, "`bake` needs `--lid`."),
            rule(house, "Never open the oven."),
            rule(house, "Always wash the bowl."),
            rule(house, "Another project's rule.", "/elsewhere"),
        ]
    )
    shown = press(house, "k", "d", "e", "q", editor="sed -i s/oven/door/")
    assert "1 of 4: rule" in shown
    assert "from session:s1 of 2025-12-29" in shown
    assert "files oven.py" in shown
    assert "surfaces when `bake` reports this error again" in shown
    assert "found in 3 past sessions" in shown
    assert "Another project" not in shown
    assert "1 proposal of other projects" in shown
    assert texts(house, "recall") == ["Bake with the lid on.", "Never open the door."]
    assert texts(house, "inbox") == ["Always wash the bowl.", "Another project's rule."]
    assert box.propose([command(house, "`bake` needs `--lid`.")]).new == 0


def test_ctrl_c_keeps_the_answers_and_undo_takes_the_last_back(house: House, box: Inbox) -> None:
    box.propose([rule(house, "One rule."), rule(house, "Two rules."), rule(house, "Three rules.")])
    press(house, "k", "d", "u", "k", "\x03")
    assert texts(house, "recall") == ["One rule.", "Two rules."]
    assert texts(house, "inbox") == ["Three rules."]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_closed_terminal_keeps_the_answers(
    house: House, box: Inbox, number: signal.Signals
) -> None:
    box.propose([rule(house, "One rule.")])
    typed(INBOX, ["k"], house.environment, house.project, then=number)
    assert texts(house, "recall") == ["One rule."]


def test_never_again_holds_for_duplicates(house: House, box: Inbox) -> None:
    box.propose([command(house, "`bake` needs `--lid`."), rule(house, "Wash the bowl.")])
    press(house, "n", "n", "q")
    assert box.propose([command(house, "`bake` needs `--cover`.")]).new == 0
    assert box.propose([rule(house, "wash the bowl!", "/elsewhere")]).new == 0
    other = command(house, "`bake` needs `--key`.", ("fails:bake:2",))
    assert box.propose([other]).new == 1


def test_all_of_a_kind_are_kept_with_one_answer(house: House, box: Inbox) -> None:
    proposals = [rule(house, "One rule."), command(house, "One command."), rule(house, "Two.")]
    box.propose(proposals)
    press(house, "a", "k", "q")
    assert texts(house, "recall") == ["One rule.", "Two."]
    shown = press(house, "q", args=("--kind", "command"))
    assert "1 of 1: command" in shown


def test_a_secret_in_an_edited_text_is_masked_and_reported(house: House, box: Inbox) -> None:
    box.propose([rule(house, "Use the token TOKEN here.")])
    shown = press(house, "e", "q", editor=f"sed -i s/TOKEN/{TOKEN}/")
    assert "a secret was masked" in shown
    (stored,) = texts(house, "recall")
    assert TOKEN not in stored
    assert stored.startswith("Use the token ")


def test_an_accepted_rule_opens_every_session(house: House, box: Inbox) -> None:
    box.propose([rule(house, "Wash the bowl."), command(house, "`bake` needs `--lid`.")])
    assert "1 standing rule stored, for every session" in press(house, "a", "k", "k", "q")
    assert texts(house, "rules") == ["Wash the bowl."]
    assert "Wash the bowl." in house.upwell("context", "--door", "session")


def test_a_rule_about_a_folder_keeps_its_scope(house: House, box: Inbox) -> None:
    texts_of = [f"Never edit files in {name}/." for name in ("vendor", "gen", "dist", "web")]
    folders = [
        replace(rule(house, text), paths=(f"{text.split()[-1][:-2]}/**",)) for text in texts_of
    ]
    box.propose(folders)
    assert "1 standing rule stored, for vendor/**" in press(house, "k", "q")
    house.upwell("inbox", "accept", folders[1].id)
    assert "for dist/**" in press(house, "a", "k", "q", args=("--kind", "rule"))
    listed = json.loads(house.upwell("rules", "--json"))["rules"]
    assert {row["text"]: row["paths"] for row in listed} == {
        proposal.text: list(proposal.paths) for proposal in folders
    }
    assert "Never edit" not in house.upwell("context", "--door", "session")


def test_outside_repositories_each_proposal_names_its_project(
    house: House, box: Inbox, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    box.propose([rule(house, "Wash the bowl.")])
    shown = typed(INBOX, ["q"], house.environment, cwd=elsewhere)
    assert "Wash the bowl." in shown
    assert f"project {house.project}" in shown
    box.propose([rule(house, "Sweep the floor.", str(elsewhere))])
    shown = typed(INBOX, ["q"], house.environment, cwd=elsewhere)
    assert "1 of 1" in shown, "a folder with its own proposals shows those"
    assert f"project {elsewhere}" in shown


def test_bulk_verbs_stay_in_the_project(house: House, box: Inbox) -> None:
    box.propose([rule(house, "Ours."), rule(house, "Theirs.", "/elsewhere")])
    assert house.upwell("inbox", "accept", "--all").startswith("1 memory stored")
    assert texts(house, "inbox") == ["Theirs."]
    assert house.upwell("inbox", "refuse", "--all").startswith("0 proposals dropped")
    assert house.upwell("inbox", "refuse", "--all", "--project", "/elsewhere").startswith("1 ")
    box.propose([rule(house, "Ours too."), rule(house, "Theirs too.", "/elsewhere")])
    accepted = house.upwell("inbox", "accept", "--all", "--every-project", "--kind", "rule")
    assert accepted.startswith("2 memories stored")
    assert "--kind 'x'" in house.refused("inbox", "accept", "--all", "--kind", "x")


def test_without_a_terminal_every_project_is_listed(house: House, box: Inbox) -> None:
    box.propose([rule(house, "Ours."), rule(house, "Theirs.", "/elsewhere")])
    assert [line.split("\t")[3] for line in house.upwell("inbox").splitlines()] == [
        "Ours.",
        "Theirs.",
    ]
    assert house.upwell("inbox", "--project", ".").count("\n") == 1


def test_the_number_of_displaced_proposals_is_reported(house: House, box: Inbox) -> None:
    box.propose([rule(house, f"Rule {number}.") for number in range(1_003)])
    listed = subprocess.run(
        INBOX, env=house.environment, cwd=house.project, capture_output=True, check=True
    )
    assert b"3 older proposals dropped" in listed.stderr
    assert "3 older proposals dropped" in press(house, "q")
    assert "made room" not in press(house, "q")
