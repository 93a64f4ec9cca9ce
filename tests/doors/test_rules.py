"""`upwell rules` on the command line, and a rule with a scope through the real hook."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doors.hook_events import claude_like, claude_read
from tests.doors.hooked import House
from upwell.capture.inbox import WHY_COMMAND, WHY_RULE, Proposal, inbox_at

TEXT = "Answer errors of the API with a problem document"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path / "house")
    yield house
    house.stop()


def rules(house: House) -> list[dict[str, Any]]:
    return json.loads(house.upwell("rules", "--json"))["rules"]


def heard(house: House, file: str, session: str) -> bool:
    event = {**claude_read(str(house.project), file), "session_id": session}
    return TEXT in json.dumps(house.hook("claude", event=event).json)


def test_rules_are_added_scoped_paused_and_removed(house: House) -> None:
    rule = house.upwell("rules", "add", TEXT, "--path", "src/**", "--tool", "Read").strip()
    everywhere = house.upwell("rules", "add", "--everywhere", "Write plain English").strip()
    by_id = {row["id"]: row for row in rules(house)}
    assert by_id[rule]["paths"] == ["src/**"]
    assert by_id[rule]["tools"] == ["Read"]
    assert by_id[rule]["project"] == str(house.project)
    assert by_id[everywhere]["project"] is None
    assert by_id[everywhere]["paths"] == []
    listed = house.upwell("rules")
    assert f"{rule}\t{house.project}\tsrc/** Read\t\t{TEXT}" in listed
    assert f"{everywhere}\tevery project\tevery session\t\tWrite plain English" in listed

    assert "paused" in house.upwell("rules", "pause", rule)
    assert {row["id"]: row["paused"] for row in rules(house)} == {rule: True, everywhere: False}
    house.upwell("rules", "resume", rule)
    house.upwell("rules", "scope", rule, "--tool", "Bash(git push*)")
    assert next(row for row in rules(house) if row["id"] == rule)["tools"] == ["Bash(git push*)"]
    house.upwell("rules", "scope", rule)
    assert next(row for row in rules(house) if row["id"] == rule)["tools"] == []
    house.upwell("rules", "remove", rule)
    assert [row["id"] for row in rules(house)] == [everywhere]
    house.upwell("restore", rule)
    assert len(rules(house)) == 2


def test_a_proposal_and_a_memory_become_standing_rules(house: House) -> None:
    box = inbox_at(house.home / "inbox.json")
    text = "Never edit files in src/generated/ by hand."
    proposal = Proposal(
        text=text,
        source="session:s",
        why=WHY_RULE,
        paths=("src/generated/**",),
        project=str(house.project),
    )
    box.propose([proposal])
    assert "src/generated/**" in house.upwell("rules", "keep", proposal.id)
    assert box.waiting() == []
    note = house.upwell("remember", "Ask before you publish").strip()
    house.upwell("rules", "keep", note, "--tool", "Bash(npm publish*)")
    by_text = {row["text"]: row for row in rules(house)}
    assert by_text[text]["paths"] == ["src/generated/**"]
    assert by_text["Ask before you publish"]["tools"] == ["Bash(npm publish*)"]
    assert "no proposal or memory" in house.refused("rules", "keep", "p-unknown")


def test_a_mistake_of_three_sessions_is_offered_as_a_rule(house: House) -> None:
    box = inbox_at(house.home / "inbox.json")
    text = "`bake` needs `--lid`; `bake --lid oak` worked."
    for session in ("one", "two", "three"):
        assert "a habit" not in house.upwell("inbox")
        proposal = Proposal(
            text=text,
            source=f"session:{session}",
            why=WHY_COMMAND,
            triggers=("fails:bake",),
            project=str(house.project),
            session=session,
        )
        box.propose([proposal])
    assert f"in 3 sessions: a habit; `upwell rules keep {proposal.id}`" in house.upwell("inbox")
    house.upwell("rules", "keep", proposal.id)
    (rule,) = rules(house)
    assert (rule["text"], rule["tools"], rule["paths"]) == (text, [], [])
    event = claude_like("begins", str(house.project), "SessionStart", source="startup")
    assert "needs `--lid`" in json.dumps(house.hook("claude", event=event).json)


def test_wrong_usage_is_one_line(house: House) -> None:
    note = house.upwell("remember", "no rule at all").strip()
    assert "upwell rules" in house.refused("rules", "pause", note)
    assert "src/api/**" in house.refused("rules", "add", "x y", "--path", "/etc/*")
    assert "Bash(git push*)" in house.refused("rules", "add", "x y", "--tool", "a b")


def test_a_scoped_rule_speaks_beside_its_files_through_the_hook(house: House) -> None:
    rule = house.upwell("rules", "add", TEXT, "--path", "src/api*.py").strip()
    house.start()
    start = claude_like("s1", str(house.project), "SessionStart", source="startup")
    assert TEXT not in json.dumps(house.hook("claude", event=start).json)
    assert not heard(house, house.file("page.py"), "s1")
    assert heard(house, house.file("api_orders.py"), "s1")
    assert not heard(house, house.file("api_orders.py"), "s1")
    house.upwell("rules", "pause", rule)
    assert not heard(house, house.file("api_orders.py"), "s2")
    house.upwell("rules", "resume", rule)
    (house.project / "CLAUDE.md").write_text(f"- {TEXT}\n")
    assert not heard(house, house.file("api_orders.py"), "s3")
    (house.project / "CLAUDE.md").unlink()
    assert heard(house, house.file("api_orders.py"), "s3")


@pytest.mark.parametrize("kind", ["a quotation", "a comment", "a link", "folders", "depth"])
def test_a_repository_silences_no_rule(house: House, kind: str) -> None:
    house.upwell("rules", "add", "--everywhere", TEXT)
    rules_folder = house.project / ".claude/rules"
    place = house.project
    if kind == "a quotation":
        (house.project / "CLAUDE.md").write_text(f"Do **not** {TEXT.lower()}, ever.\n")
    elif kind == "a comment":
        (house.project / "CLAUDE.md").write_text(f"<!--\n- {TEXT}\n-->\n")
    elif kind == "a link":
        rules_folder.parent.mkdir()
        rules_folder.symlink_to("/usr")
    elif kind == "depth":
        place /= "d/" * 300
        place.mkdir(parents=True)
    else:
        for number in range(3_000):
            (rules_folder / f"{number}/more").mkdir(parents=True)
    house.start()
    start = claude_like("s1", str(place), "SessionStart", source="startup")
    assert TEXT in json.dumps(house.hook("claude", event=start).json)


def test_a_rule_that_is_replaced_on_the_command_line_is_replaced_by_a_rule(house: House) -> None:
    old = house.upwell("rules", "add", TEXT, "--tool", "Read").strip()
    new = house.upwell("remember", "Answer errors with plain text", "--supersedes", old).strip()
    by_id = {row["id"]: row for row in rules(house)}
    assert by_id[old]["replaced"]
    assert not by_id[new]["replaced"]
    assert by_id[new]["tools"] == ["Read"]
    assert not heard(house, "src/api.py", "replaced")


def test_the_replacement_of_a_rule_for_every_project_is_for_every_project(house: House) -> None:
    old = house.upwell("rules", "add", "--everywhere", TEXT).strip()
    new = house.upwell("remember", "Answer errors with plain text", "--supersedes", old).strip()
    assert {row["id"]: row["project"] for row in rules(house)}[new] is None


def test_the_replacement_of_a_guard_is_a_guard(house: House) -> None:
    old = house.upwell("rules", "add", TEXT, "--tool", "Bash(make *)", "--guard").strip()
    new = house.upwell("remember", "Never run make here", "--supersedes", old).strip()
    assert {row["id"]: row["guard"] for row in rules(house)}[new]
