"""What past sessions taught: which of it matters most, what each session taught, and the count."""

from upwell.app import App
from upwell.app.lesson_book import (
    Taught,
    Teaching,
    everything_taught,
    foremost,
    learned,
)
from upwell.app.lesson_book import (
    taught_by_session as by_session,
)
from upwell.capture.inbox import WHY_COMMAND, WHY_COMMIT, WHY_RULE, Proposal
from upwell.ground.types.memory import LESSON, Memory, Provenance, Trust

RULE, COMMAND = "Never edit generated clients.", "`bake` fails; `bake --lid` works."
MISTAKE = "`make all` fails here. Do not repeat it as it is."
OLD, NEW = "The oven takes wood.", "The oven takes gas since May."


def taught(name: str, kind: Teaching = Teaching.LESSON, times: int = 1, at: float = 0) -> Taught:
    return Taught(kind=kind, id=name, text=name, label="", times=times, at=at, sessions=(name,))


def names(found: list[Taught]) -> list[str]:
    return [one.id for one in found]


def test_what_many_sessions_taught_comes_first_then_the_users_rules_then_the_latest() -> None:
    found = [
        taught("state", Teaching.STATE, at=9),
        taught("old lesson", at=1),
        taught("new lesson", at=2),
        taught("rule", Teaching.RULE),
        taught("habit", Teaching.COMMAND, times=4),
    ]
    assert names(foremost(found)) == ["habit", "rule", "new lesson", "old lesson", "state"]
    assert foremost(found[::-1]) == foremost(found)


def test_no_kind_crowds_out_the_others_unless_there_is_nothing_else() -> None:
    habits = [taught(f"habit {n}", Teaching.COMMAND, times=9 - n) for n in range(6)]
    mixed = [*habits, taught("rule", Teaching.RULE), taught("lesson")]
    assert names(foremost(mixed)) == ["habit 0", "habit 1", "habit 2", "rule", "lesson"]
    assert names(foremost(habits)) == [f"habit {n}" for n in range(5)]


def test_a_finding_belongs_to_each_session_that_taught_it() -> None:
    both = Taught(kind=Teaching.RULE, id="r", text="r", label="", sessions=("s2", "s1"))
    assert by_session([both, taught("s1")]) == {"s2": [both], "s1": [both, taught("s1")]}


async def test_proposals_lessons_and_commands_are_counted_and_others_are_not(app: App) -> None:
    origin = Provenance(door=LESSON, tool="decision", session="s1")
    lessons = [
        Memory(id="l1", text=OLD, namespace="lessons", provenance=origin, trust=Trust.AGENT),
        Memory(
            id="l2", text=NEW, namespace="lessons", provenance=origin, trust=Trust.AGENT,
            supersedes="l1",
        ),
    ]  # fmt: skip
    await app.memory.add_many([*lessons, Memory(text="Noted by hand.", namespace="patterns")])
    command = Proposal(
        text=COMMAND, source="session:s2", why=WHY_COMMAND, namespace="learnings", session="s2"
    )
    await app.memory.add(command.memory(Trust.AGENT))
    app.inbox().propose(
        [
            Proposal(text=RULE, source="session:s1", why=WHY_RULE, session="s1", at=3.0),
            Proposal(
                text=MISTAKE, source="session:s2", why=WHY_RULE, triggers=("rule:tool:x",), at=2.0
            ),
            Proposal(text="A commit says why.", source="git:1", why=WHY_COMMIT),
        ]
    )
    found = {one.text: one for one in await everything_taught(app)}
    assert found[MISTAKE].label == "mistake that sessions repeat", "nobody gave this rule"
    assert set(found) == {NEW, RULE, COMMAND, MISTAKE}, (
        "neither superseded, nor by hand, nor from a commit"
    )
    assert found[RULE].waits
    assert (found[NEW].label, found[NEW].sessions) == ("lesson: decision", ("s1",))
    known = await learned(app)
    assert known.parts == (
        *("1 lesson", "1 command that works here"),
        *("1 mistake that sessions repeat", "1 rule you gave"),
    )
    assert [one.text for one in known.foremost] == [RULE, NEW, COMMAND, MISTAKE]
    assert known.sentence.startswith("0 sessions read: 1 lesson, ")
    assert (known.stored, known.waiting) == (2, 2)
