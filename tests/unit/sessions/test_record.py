"""The record of a session, from its turns."""

from upwell.episodes.events import Kind, SessionEvent
from upwell.sessions.record import (
    Facts,
    RecordedRequest,
    SessionRecord,
    decoded,
    encoded,
    facts_of,
)
from upwell.sessions.turns import Turn, turns_of

ROOT = "/home/ana/harbour"


def call(number: int, command: str, out: str = "", *, failed: bool = False) -> SessionEvent:
    args = {"command": command}
    return SessionEvent(
        session="s", i=number, t=number, kind=Kind.TOOL, tool="Bash", args=args, out=out,
        failed=failed, cwd=ROOT,
    )  # fmt: skip


def turn(*events: SessionEvent, question: str = "Fix ticket #45") -> Turn:
    prompt = SessionEvent(session="s", i=0, t=0.0, kind=Kind.PROMPT, text=question, cwd=ROOT)
    (only,) = turns_of([prompt, *events])
    return only


def edit(number: int, path: str) -> SessionEvent:
    args = {"file_path": path, "old_string": "a", "new_string": "b"}
    return SessionEvent(
        session="s", i=number, t=number, kind=Kind.TOOL, tool="Edit", args=args, cwd=ROOT
    )


def record(*facts: Facts) -> SessionRecord:
    requests = [
        RecordedRequest(n, float(n), f"q{n}", f"c{n}", each) for n, each in enumerate(facts)
    ]
    return SessionRecord("s", "claude", ROOT, float(len(facts)), tuple(requests))


def test_a_turn_contributes_files_checks_commits_branches_and_tickets() -> None:
    facts = facts_of(
        turn(
            edit(1, f"{ROOT}/src/pump.py"),
            edit(2, "/home/ana/.plans/pump.md"),
            call(3, "make test", "boom", failed=True),
            call(4, "git checkout -b fix/pump"),
            call(5, "git commit -m x", "[fix/pump 1a2b3c4] Oil the pump"),
            call(6, "gh pr create", "https://forge.example/a/b/pull/12"),
            call(7, "ls /deploy/test", "no", failed=True),
            call(8, "nl -ba src/pump.test.ts", "no", failed=True),
        ),
        ROOT,
    )
    assert facts == Facts(
        changed=("src/pump.py",),
        checks={"make test": False},
        commits=("1a2b3c4 Oil the pump",),
        branches=("fix/pump",),
        tickets=("45",),
        pulls=("12",),
    )
    assert decoded(encoded(facts)) == facts


def test_a_secret_is_masked() -> None:
    secret = "ghp_" + "x7Kq2mZp9Lr4Tn8Vb3Wc6Yd1Hf5Js0GuEaQi"
    facts = facts_of(turn(call(1, "git commit", f"[main 1a2b3c4] use {secret}")), ROOT)
    assert secret not in encoded(facts).decode()


def test_a_check_that_works_later_is_not_red() -> None:
    failed, fixed = (
        Facts(checks={"make test": False, "make lint": False}),
        Facts(checks={"make test": True}),
    )
    assert record(failed).red == ("make lint", "make test")
    assert record(failed, fixed).red == ("make lint",)
    joined = Facts(checks={"make db && make test": True})
    assert record(failed, joined).red == ("make lint",)
