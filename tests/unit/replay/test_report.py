"""The report: sessions in order, sums by moment, nothing secret."""

from pathlib import Path

from tests.unit.replay.repository import ENVIRONMENT

from upwell.ground.types.memory import Hit, Memory
from upwell.replay.memories import ReplayProjects
from upwell.replay.report import SHOWN, ReplayReport
from upwell.replay.run import SAID, ReplayDecision

TOKEN = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4xY7zC0fI2kL5"


def decision(session: str, t: float, outcome: str = SAID, subject: str = "Why?") -> ReplayDecision:
    memory = Memory(id="m1", text="Because\nit froze", source="git:abc", created_at=1.0)
    return ReplayDecision(
        session=session,
        i=0,
        t=t,
        door="prompt",
        moment="question",
        outcome=outcome,
        hits=(Hit(memory=memory, score=0.625),) if outcome == SAID else (),
        tokens=40 if outcome == SAID else 0,
        subject=subject,
    )


def report(tmp_path: Path, *decisions: ReplayDecision) -> ReplayReport:
    made = ReplayReport(ReplayProjects(tmp_path, ENVIRONMENT))
    for entry in decisions:
        made.add(entry)
    return made


def test_sessions_with_memories_are_reported_in_order(tmp_path: Path) -> None:
    silent = decision("quiet", 50.0, "no_candidates")
    made = report(tmp_path, decision("late", 7200.0), decision("early", 0.0), silent)
    assert list(made.sessions()) == [
        "1970-01-01 00:00  early  1 event, 1 memory, 40 tokens",
        "  1970-01-01 00:00  question: Why?",
        "    0.62  commit git:abc: Because it froze",
        "1970-01-01 02:00  late  1 event, 1 memory, 40 tokens",
        "  1970-01-01 02:00  question: Why?",
        "    0.62  commit git:abc: Because it froze",
    ]


def test_a_long_session_is_cut(tmp_path: Path) -> None:
    made = report(tmp_path, *(decision("s", float(number)) for number in range(SHOWN + 4)))
    assert list(made.sessions())[-1] == "  … and 4 more (--json shows all)"


def test_sums_are_by_moment_and_of_all(tmp_path: Path) -> None:
    made = report(tmp_path, decision("s", 0.0), decision("s", 1.0, "repeated"))
    expected = {"events": "2", "spoke": "1", "memories": "1", "per 100": "50.0", "tokens": "40"}
    assert made.rows() == [{"moment": "question", **expected}, {"moment": "all", **expected}]
    assert made.silences() == ["        1  every relevant memory was delivered before"]


def test_a_memory_to_judge_is_whole_and_without_its_score(tmp_path: Path) -> None:
    first = decision("s", 0.0)
    lines = list(report(tmp_path, first).sampled_hit(first, first.hits[0]))
    assert lines[1:] == ["  commit git:abc", "  | Because", "  | it froze"]
    assert "0.62" not in "".join(lines)


def test_secrets_in_prompts_are_masked(tmp_path: Path) -> None:
    first = decision("s", 0.0, subject=f"Use {TOKEN} for the push")
    made = report(tmp_path, first)
    answer = "".join([*made.sessions(), *made.sampled_hit(first, first.hits[0])])
    assert TOKEN not in answer
    assert "for the push" in answer
