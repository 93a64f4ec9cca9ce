"""The `rules` commands: the standing rules, and where each of them applies."""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from msgspec.structs import replace

from upwell.cli.command import Argument, Group, Option
from upwell.cli.hooks import hosts_without_guard_hooks
from upwell.cli.output import Everywhere, Json, note, note_masked, say, say_json, table
from upwell.cli.session import with_memory, with_store
from upwell.ground.errors import StoreError, UsageError
from upwell.ground.names import memory_id as id_in
from upwell.ground.project import repository_of
from upwell.ground.types.memory import Memory, Provenance, Scope, Trust

if TYPE_CHECKING:
    from upwell.app import MemoryApp, StoreApp

MAX_LISTED = 1_000
Id = Annotated[str, Argument(metavar="ID", help="`upwell rules` lists them.")]
Paths = Annotated[
    list[str] | None,
    Option("--path", metavar="GLOB", help="Files of the project (src/api/**); repeatable."),
]
Tools = Annotated[
    list[str] | None,
    Option(
        "--tool", metavar="NAME", help="Tools and commands (Bash, 'Bash(git push*)'); repeatable."
    ),
]
Guard = Annotated[
    bool,
    Option(
        "--guard",
        help="Refuse a matching command (--tool 'Bash(git push*--force*)') once a session, with "
        "the rule as the reason.",
    ),
]


def listed(as_json: Json = False) -> None:
    """List the standing rules of every project, newest first."""
    from upwell.app.review import described_rules

    async def work(app: "StoreApp") -> list[Memory]:
        return list(await app.memory.store.pinned(Scope(), limit=MAX_LISTED))

    rows = described_rules(with_store(work))
    if as_json:
        say_json({"rules": rows})
        return
    for row in rows:
        row["scope"] = " ".join([*row.pop("paths"), *row.pop("tools")]) or "every session"
        row["project"] = row["project"] or "every project"
        states = [state for state in ("guard", "paused", "replaced") if row.pop(state)]
        row["state"] = ", ".join(states)
    table(("id", "project", "scope", "state", "text"), rows, "No standing rules.")


rules = Group(
    "Standing rules. A rule without a scope opens every session; a rule with a scope surfaces "
    "once a session, at a call on a matching file or command.",
    listed,
)


@rules.command("add")
def add(
    text: Annotated[list[str], Argument(metavar="TEXT", help="The rule. `-` reads stdin.")],
    path: Paths = None,
    tool: Tools = None,
    everywhere: Everywhere = False,
    guard: Guard = False,
) -> None:
    """Add a standing rule and print its id."""
    from upwell.surface.rules import GUARD, check_guard, checked_scope

    scope = checked_scope(path or (), tool or ())
    if guard:
        check_guard(scope)
    rule = Memory(
        text=sys.stdin.read() if text == ["-"] else " ".join(text),
        namespace="patterns",
        project=None if everywhere else repository_of(os.getcwd()),
        provenance=Provenance(door="cli"),
        pinned=True,
        tags=(GUARD,) if guard else (),
        triggers=scope.triggers(),
    )
    added = with_store(lambda app: app.memory.add(rule))
    note_masked(added.redacted)
    say(added.id)
    # Calls through the gateway need no hook.
    refuses_commands = any(pattern.startswith("Bash(") for pattern in scope.tools)
    where = "This guard" if refuses_commands else "Outside the gateway, this guard"
    for agent in hosts_without_guard_hooks() if guard else ():
        note(
            f"upwell: {where} does nothing in {agent} until you run: "
            f"upwell hook install {agent} --apply"
        )


@rules.command("keep")
def keep(
    rule: Annotated[str, Argument(metavar="ID", help="The id of a proposal or memory.")],
    path: Paths = None,
    tool: Tools = None,
) -> None:
    """Turn a proposal or a stored memory into a standing rule."""
    from upwell.cli.inbox import open_inbox
    from upwell.surface.rules import checked_scope, standing

    box = open_inbox()
    proposals = [item for item in box.waiting() if item.id == rule]
    scope = checked_scope(path or (), tool or ())

    async def work(app: "MemoryApp") -> Memory:
        memory = proposals[0].memory() if proposals else await app.memory.get(id_in(rule))
        if memory is None or memory.trust is not Trust.USER:
            raise StoreError(
                f"you have no proposal or memory {rule!r}",
                hint="`upwell inbox` and `upwell recall` list ids",
            )
        rule_kept = standing(memory, scope)
        await (app.memory.add(rule_kept) if proposals else app.memory.update(rule_kept))
        return rule_kept

    _report(with_memory(work))
    box.take([item.id for item in proposals])


@rules.command("scope")
def scope(rule: Id, path: Paths = None, tool: Tools = None, everywhere: Everywhere = False) -> None:
    """Give a rule another scope. The rule then belongs to this repository unless --everywhere is
    given. Without --path and --tool it opens every session."""
    from upwell.surface.rules import checked_scope

    triggers = checked_scope(path or (), tool or ()).triggers()
    project = None if everywhere else repository_of(os.getcwd())
    if project is None and not everywhere:
        raise UsageError("this folder is not in a repository", hint="give --everywhere")
    _change(rule, lambda memory: replace(memory, triggers=triggers, project=project))


@rules.command("pause")
def pause(rule: Id) -> None:
    """Stop giving a rule to agents until `upwell rules resume`."""
    from upwell.app.review import paused

    _change(rule, paused)


@rules.command("resume")
def resume(rule: Id) -> None:
    """Give a paused rule to agents again."""
    from upwell.app.review import resumed

    _change(rule, resumed)


@rules.command("remove")
def remove(rule: Id) -> None:
    """Move a rule to the trash. `upwell restore ID` brings it back within 30 days."""

    from upwell.app.review import rule_of

    async def work(app: "StoreApp") -> None:
        await app.memory.delete((await rule_of(app, id_in(rule))).id)

    with_store(work)
    say(f"removed {id_in(rule)}")


def _change(rule: str, change: Callable[[Memory], Memory]) -> None:
    from upwell.app.review import change_rule

    async def work(app: "StoreApp") -> Memory:
        return await change_rule(app, id_in(rule), change)

    _report(with_store(work))


def _report(rule: Memory) -> None:
    from upwell.app.review import described_rule

    row = described_rule(rule)
    scope_text = " ".join([*row["paths"], *row["tools"]]) or "every session"
    say(f"{row['id']}: {'paused' if row['paused'] else scope_text}")
