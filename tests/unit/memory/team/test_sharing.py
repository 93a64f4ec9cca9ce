"""The form in which memories are shared."""

import pytest

from upwell.ground.errors import UsageError
from upwell.ground.types.memory import Memory, Trust
from upwell.memory.team.sharing import is_for_team, own_name, shared_namespace
from upwell.surface.session_start import standing


def test_sharing_moves_a_memory_into_the_namespace_of_the_team() -> None:
    assert shared_namespace("context") == "team"
    assert shared_namespace("decisions") == "team/decisions"
    assert shared_namespace("team/decisions") == "team/decisions"
    with pytest.raises(UsageError, match="private"):
        shared_namespace("me/ideas")


@pytest.mark.parametrize(
    ("namespace", "trust", "expected"),
    [
        ("team", Trust.USER, True),
        ("team/decisions", Trust.IMPORTED, True),
        ("team", Trust.AGENT, False),
        ("team/decisions", Trust.TOOL, False),
        ("teamwork", Trust.USER, False),
        ("me/team", Trust.USER, False),
        ("context", Trust.USER, False),
    ],
)
def test_only_people_share(namespace: str, trust: Trust, expected: bool) -> None:
    assert is_for_team(Memory(text="tide", namespace=namespace, trust=trust)) is expected


def test_a_decision_of_the_team_counts_as_a_decision() -> None:
    assert own_name("team/decisions") == "decisions"
    assert own_name("teams/decisions") == "teams/decisions"
    shared, own = (
        standing(Memory(text="tide", namespace=name, created_at=1.0), "/p", 0.0, 2.0).score
        for name in ("team/decisions", "decisions")
    )
    assert shared == own
