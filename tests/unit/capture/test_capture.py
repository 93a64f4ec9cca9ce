"""Proposals from commits and transcripts, and the inbox."""

import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from upwell.capture.git import proposals_from, worthiest
from upwell.capture.inbox import MAX_WAITING, WHY_COMMAND, WHY_COMMIT, Inbox, Intake, Proposal
from upwell.ground.errors import StoreUnwritable, UsageError
from upwell.ground.types.memory import Trust


def git(folder: Path, *args: str) -> None:
    names = ("-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *names, *args], check=True, capture_output=True)


def commit(folder: Path, message: str, *files: str) -> None:
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(message)
    git(folder, "add", "-A")
    git(folder, "commit", "--allow-empty", "-q", "-m", message)


def test_commits_that_give_a_reason_are_proposed_with_their_files(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    commit(tmp_path, "Add the parser", "src/parser.py")
    commit(
        tmp_path,
        "Fix the retry loop\n\nIt must wait, because the bank locks accounts that ask too often."
        "\n\nSigned-off-by: A <a@b.example>",
        "src/retry.py",
        "tests/test retry.py",
    )
    commit(tmp_path, "Bump tokio to avoid a deadlock that somebody reported", "lock")
    commit(tmp_path, "Cache keys hold the tenant, so that nobody reads another's", "src/cache.py")
    proposals = proposals_from(tmp_path, 50, os.environ).proposals
    assert [item.text for item in proposals] == [
        "Fix the retry loop. It must wait, because the bank locks accounts that ask too often.",
        "Cache keys hold the tenant, so that nobody reads another's",
    ]
    assert proposals[0].paths == ("src/retry.py", "tests/test retry.py")
    assert proposals[0].namespace == "learnings"
    assert proposals[0].source.startswith("git:")
    assert proposals[0].project == str(tmp_path)


def test_a_repositorys_configuration_starts_nothing(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    commit(tmp_path, "Locks are taken in order, otherwise two jobs wait for ever", "a.py")
    trap, mark = tmp_path / "trap.sh", tmp_path / "started"
    trap.write_text(f"#!/bin/sh\ntouch {mark}\n")
    trap.chmod(0o755)
    for key in ("core.pager", "core.fsmonitor", "diff.external", "gpg.program", "core.sshCommand"):
        git(tmp_path, "config", key, str(trap))
    git(tmp_path, "config", "log.showSignature", "true")
    mark.unlink(missing_ok=True)
    assert len(proposals_from(tmp_path, 50, os.environ).proposals) == 1
    assert not mark.exists()


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("host:repo.git", {"core.sshCommand": "TRAP", "protocol.ssh.allow": "always"}),
        ("ext::TRAP", {"protocol.ext.allow": "always"}),
        ("file:///nowhere", {"remote.origin.uploadpack": "TRAP", "protocol.file.allow": "always"}),
        ("git://127.0.0.1:9/x", {"core.gitProxy": "TRAP", "protocol.git.allow": "always"}),
        ("http://127.0.0.1:9/x", {"credential.helper": "!TRAP"}),
    ],
)
def test_missing_objects_are_not_fetched(
    tmp_path: Path, url: str, settings: dict[str, str]
) -> None:
    folder = tmp_path / "cloned"
    folder.mkdir()
    git(folder, "init", "-q")
    commit(folder, "Locks are taken in order, otherwise two jobs wait for ever", "a.py")
    commit(folder, "Locks are kept short, because two jobs would wait for ever", "a.py")
    trap, mark = tmp_path / "trap.sh", tmp_path / "started"
    trap.write_text(f"#!/bin/sh\ntouch {mark}\n")
    trap.chmod(0o755)
    partial = {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": url,
        "protocol.allow": "always",
    }
    tree = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "HEAD~1^{tree}"], capture_output=True, check=True
    )
    removed = tree.stdout.decode().strip()
    (folder / ".git/objects" / removed[:2] / removed[2:]).unlink()
    for key, value in {**partial, **settings}.items():
        git(folder, "config", key, value.replace("TRAP", str(trap)))
    reading = proposals_from(folder, 50, {**os.environ, "GIT_SSH_COMMAND": str(trap)})
    assert (reading.read, len(reading.proposals)) == (2, 2)
    assert "objects are missing" in reading.gap
    assert not mark.exists()


def test_no_message_can_imitate_another_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    text = "Keys hold the tenant,\x01 because\x02 nobody\x1e may read another's \x01\x02\x02"
    commit(tmp_path, text, "a.py")
    reading = proposals_from(tmp_path, 50, {**os.environ, "GIT_DIR": "/nowhere"})
    (proposals,) = reading.proposals
    assert proposals.text.startswith("Keys hold the tenant")
    assert proposals.paths == ("a.py",)


def test_progress_is_shown_while_commits_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upwell.capture.git.SHOWN_EVERY", 2)
    git(tmp_path, "init", "-q")
    for number in range(5):
        commit(tmp_path, f"Change {number}", "a.py")
    shown: list[tuple[int, int]] = []
    proposals_from(tmp_path, 4, os.environ, show=lambda done, total: shown.append((done, total)))
    assert shown == [(2, 4), (4, 4)]


def test_a_folder_outside_a_repository_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="in no git repository"):
        proposals_from(tmp_path, 10, os.environ)


@pytest.fixture
def box(tmp_path: Path) -> Inbox:
    def mask(text: str) -> tuple[str, tuple[str, ...]]:
        return text.replace("hunter2", "***"), ("password",) if "hunter2" in text else ()

    return Inbox(tmp_path / "inbox.json", mask)


def proposal(text: str) -> Proposal:
    return Proposal(text=text, source="git:1", why="a commit", project="/p", paths=("a.py",))


def test_of_two_commands_that_work_where_another_fails_the_later_waits(box: Inbox) -> None:
    def command(text: str, at: float, *triggers: str) -> Proposal:
        name = f"s{at}"
        return replace(
            proposal(text), why=WHY_COMMAND, triggers=triggers, at=at, session=name, paths=()
        )

    box.propose([command("In `web`, `npm` works.", 2.0, "way:npm:here")])
    box.propose([command("`pnpm` works.", 3.0, "way:npm:here", "way:npm:anywhere")])
    box.propose([command("`yarn` works.", 1.0, "way:npm:there", "way:npm:anywhere")])
    (waiting,) = box.waiting()
    assert (waiting.text, waiting.occurrences) == ("`pnpm` works.", 3)


def test_a_settled_proposal_is_not_made_again(box: Inbox) -> None:
    box.propose([proposal("One"), proposal("Two")])
    first = box.waiting()[0]
    assert box.take([first.id]) == [first]
    assert box.propose([proposal("One")]).new == 0
    assert [item.text for item in box.waiting()] == ["Two"]
    assert [item.text for item in box.chosen([])] == ["Two"]
    with pytest.raises(UsageError):
        box.chosen(["nothing"])


def test_secrets_are_masked_before_anything_is_written(box: Inbox, tmp_path: Path) -> None:
    assert box.propose([proposal("The password is hunter2")]).redacted == ("password",)
    assert b"hunter2" not in (tmp_path / "inbox.json").read_bytes()
    assert box.waiting()[0].text == "The password is ***"


def test_an_accepted_proposal_belongs_to_the_user_and_has_its_origin(box: Inbox) -> None:
    box.propose([proposal("One")])
    memory = box.waiting()[0].memory()
    assert memory.trust is Trust.USER
    assert (memory.source, memory.provenance.door, memory.paths) == ("git:1", "capture", ("a.py",))


def episode(text: str, session: str, at: float) -> Proposal:
    situation = ("fails:bake:1",)
    return Proposal(
        text=text, source="s", why="w", project="/p", session=session, at=at, triggers=situation
    )


def test_the_later_episode_of_a_situation_replaces_the_earlier_one(box: Inbox) -> None:
    assert box.propose([episode("`bake --lid` works.", "a", 1.0)]).new == 1
    assert box.propose([episode("`bake --cover` works.", "b", 3.0)]).new == 0
    assert box.propose([episode("`bake --old` works.", "c", 2.0)]).new == 0
    (waiting,) = box.waiting()
    assert (waiting.text, waiting.occurrences) == ("`bake --cover` works.", 3)
    assert waiting.memory().triggers == ("fails:bake:1",)


def test_a_banned_proposal_comes_back_in_no_form(box: Inbox) -> None:
    box.propose([proposal("One rule"), episode("`bake --lid` works.", "a", 1.0)])
    assert box.ban(box.waiting()) == 2
    elsewhere = replace(proposal("one RULE!"), project="/q")
    assert box.propose([elsewhere, episode("`bake --cover` works.", "b", 2.0)]).new == 0
    assert box.is_settled(elsewhere)
    assert not box.is_settled(proposal("Another rule"))


def test_the_room_of_each_project_is_its_own(box: Inbox) -> None:
    box.propose([proposal("Kept")])
    other = [replace(proposal(f"Rule {n}"), project="/q") for n in range(MAX_WAITING + 2)]
    assert box.propose(other) == Intake(new=MAX_WAITING + 2, displaced=2)
    waiting = [item.text for item in box.waiting()]
    assert waiting[:2] == ["Kept", "Rule 2"]
    assert len(waiting) == MAX_WAITING + 1
    assert box.displaced() == {"/q": 2}
    assert box.forget_displaced("/p") == 0
    assert box.forget_displaced(None) == 2
    assert box.displaced() == {}


def test_a_damaged_inbox_is_reported(box: Inbox, tmp_path: Path) -> None:
    (tmp_path / "inbox.json").write_text("{")
    with pytest.raises(StoreUnwritable):
        box.waiting()


def test_of_many_commits_those_that_say_best_why_are_proposed() -> None:
    texts = [
        "Retry the upload. It failed on Mondays because the token expires on Sunday.",
        "style: apply gofmt. The linter fails because of it.",
        "Add security headers. - must be set, because browsers ask",
        "Pin the driver. The new one leaks connections, which is why the pool was empty.",
        "Split the page. It is compatible with the old one.",
    ]
    proposals = [Proposal(text=text, source="git:1", why=WHY_COMMIT) for text in texts]
    assert worthiest(proposals, 9) == [proposals[0], proposals[3]]
    assert worthiest(proposals, 1) == [proposals[3]]
