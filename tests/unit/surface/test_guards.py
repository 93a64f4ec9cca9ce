"""Guards: which calls they refuse, and that they refuse once."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from upwell.ground.errors import StoreCorrupt, UsageError
from upwell.ground.ledger import TtlStore
from upwell.ground.types.cue import Cue, Door
from upwell.ground.types.memory import Memory, Scope, Trust
from upwell.surface.rules import (
    FRESH_SECONDS,
    GUARD,
    PAUSED,
    Guards,
    check_guard,
    checked_scope,
    is_guard,
)
from upwell.testing import FakeRecall, ManualClock

TEXT = "Ask before the shared branch is rewritten."
RULE = Memory(
    id="g1",
    text=TEXT,
    pinned=True,
    tags=(GUARD,),
    triggers=("tool:Bash(git push*--force*)", "tool:Bash(git push* -f*)"),
)


class Stage:
    """Guards over these rules, and the rules by which they refused."""

    def __init__(self, *rules: Memory, reader: FakeRecall | None = None) -> None:
        self.recall = reader or FakeRecall(rules=rules)
        self.clock = ManualClock()
        self.is_paused = False
        self.recorded: list[str] = []
        self.guards = Guards(
            self.recall,
            TtlStore(clock=self.clock),
            is_paused=lambda _: self.is_paused,
            refused=lambda cue, rule: self.recorded.append(rule.id),
            clock=self.clock,
        )

    async def refuses(self, command: str, session: str = "s", tool: str = "Bash") -> bool:
        cue = Cue(door=Door.TOOL, tool=tool, args={"command": command}, session=session)
        return await self.guards.refusal(cue) is not None


async def test_a_rule_of_the_team_refuses_nothing() -> None:
    assert not await Stage(replace(RULE, namespace="team")).refuses("git push --force origin")


async def test_a_matching_command_is_refused_once_in_a_session() -> None:
    stage = Stage(RULE)
    cue = Cue(door=Door.TOOL, tool="Bash", args={"command": "git push --force origin"}, session="s")
    refusal = await stage.guards.refusal(cue)
    assert refusal is not None
    assert TEXT in refusal.reason
    assert "upwell://memory/g1" in refusal.reason
    assert not await stage.refuses("git push --force origin"), "asked again, it passes"
    assert await stage.refuses("git push --force origin", session="another")
    assert stage.recorded == ["g1", "g1"]


@pytest.mark.parametrize(
    "command",
    [
        "git push --force",
        "cd /repo && git push --force-with-lease origin main",
        "sudo git push --force",
        "GIT_TRACE=1 git  push --force",
        "true; git push --force | cat",
        "(git push --force)",
        "git push origin main --force",
        "git push -f origin main",
        "git push origin main -f",
    ],
)
async def test_wrappers_and_other_commands_do_not_hide_it(command: str) -> None:
    assert await Stage(RULE).refuses(command)


@pytest.mark.parametrize(
    ("command", "tool"),
    [
        ("git push origin main", "Bash"),
        ("git push origin new-feature --follow-tags", "Bash"),
        ("echo 'git push --force'", "Bash"),
        ("git push --force", "Read"),
        ("git push --force", "shell__run"),
    ],
)
async def test_other_calls_pass(command: str, tool: str) -> None:
    assert not await Stage(RULE).refuses(command, tool=tool)


async def test_a_tool_of_a_server_is_refused() -> None:
    rule = replace(RULE, triggers=("tool:github__delete_*",))
    assert await Stage(rule).refuses("", tool="github__delete_repository")
    assert not await Stage(rule).refuses("", tool="github__list_repositories")


@pytest.mark.parametrize(
    "changed",
    [
        {"tags": ()},
        {"tags": (GUARD, PAUSED)},
        {"trust": Trust.AGENT},
        {"trust": Trust.IMPORTED},
        {"pinned": False},
        {"triggers": ("path:src/**",)},
        {"triggers": ()},
    ],
)
async def test_only_a_rule_that_a_person_marked_refuses(changed: dict[str, Any]) -> None:
    assert not await Stage(replace(RULE, **changed)).refuses("git push --force")


async def test_two_guards_each_refuse_once() -> None:
    stage = Stage(RULE, replace(RULE, id="g2", triggers=("tool:Bash(git push*)",)))
    assert [await stage.refuses("git push --force") for _ in range(3)] == [True, True, False]
    assert stage.recorded == ["g1", "g2"]


async def test_two_calls_at_once_get_one_refusal() -> None:
    stage = Stage(RULE)
    outcomes = await asyncio.gather(*(stage.refuses("git push --force") for _ in range(4)))
    assert sorted(outcomes) == [False, False, False, True]


async def test_a_refusal_that_does_not_arrive_is_due_again() -> None:
    stage = Stage(RULE)
    cue = Cue(door=Door.TOOL, tool="Bash", args={"command": "git push --force"}, session="s")
    refusal = await stage.guards.refusal(cue)
    assert refusal is not None
    await stage.guards.withdraw(refusal)
    assert await stage.guards.refusal(cue) is not None


async def test_a_paused_session_and_an_unknown_one_are_not_refused() -> None:
    stage = Stage(RULE)
    stage.is_paused = True
    assert not await stage.refuses("git push --force")
    stage.is_paused = False
    assert not await stage.refuses("git push --force", session="")
    assert await stage.refuses("git push --force")


async def test_guards_that_cannot_be_read_refuse_nothing() -> None:
    class Broken(FakeRecall):
        async def pinned(self, scope: Scope, *, limit: int = 50) -> Sequence[Memory]:
            raise StoreCorrupt("memory.db is broken")

    class Slow(FakeRecall):
        async def pinned(self, scope: Scope, *, limit: int = 50) -> Sequence[Memory]:
            await asyncio.sleep(30)
            return [RULE]

    for recall in (Broken(), Slow()):
        assert not await Stage(reader=recall).refuses("git push --force")


async def test_a_guard_that_another_process_adds_takes_effect_within_a_second() -> None:
    stage = Stage()
    assert not await stage.refuses("git push --force")
    stage.recall.rules = [RULE]
    assert not await stage.refuses("git push --force")
    stage.clock.advance(FRESH_SECONDS)
    assert await stage.refuses("git push --force")


def test_a_guard_names_a_command_or_a_tool_of_a_server() -> None:
    check_guard(checked_scope((), ("Bash(rm -rf*)", "github__delete_*")))
    for tools in ((), ("Bash",), ("Write",)):
        with pytest.raises(UsageError, match="a guard needs a command"):
            check_guard(checked_scope((), tools))
    with pytest.raises(UsageError, match="not before they read or write a file"):
        check_guard(checked_scope(("src/**",), ()))
    assert is_guard(RULE)
