"""Prepare memories for a store that other people read."""

from msgspec.structs import replace

from upwell.ground.errors import UsageError
from upwell.ground.project import address_of, main_worktree_of
from upwell.ground.text.anchors import relative_to
from upwell.ground.types.memory import DEFAULT_NAMESPACE, Memory, Provenance, Trust
from upwell.ground.types.rpc import PRIVATE

TEAM = "team"
"""A person shares a memory by putting it in this namespace or in one below it (`team/…`)."""

FOLDERS = ("/", "~")
"""How paths on one machine begin."""


def is_for_team(memory: Memory) -> bool:
    """Return whether a new memory is shared with the team. It is shared if a person put it in one
    of the team's namespaces. A memory that an agent or a tool puts there stays on this machine."""
    return is_teams(memory.namespace) and memory.trust in (Trust.USER, Trust.IMPORTED)


def is_teams(namespace: str) -> bool:
    return namespace == TEAM or namespace.startswith(f"{TEAM}/")


def shared_namespace(namespace: str) -> str:
    """Return the team's namespace for a memory that would otherwise be in `namespace`. Raises
    UsageError if the namespace is private."""
    if namespace.startswith(PRIVATE):
        raise UsageError(
            f"{namespace!r} is private", hint=f"leave out --share, or the start {PRIVATE!r}"
        )
    return teams_namespace(namespace)


def teams_namespace(namespace: str) -> str:
    if is_teams(namespace):
        return namespace
    return TEAM if namespace == DEFAULT_NAMESPACE else f"{TEAM}/{namespace}"


def own_name(namespace: str) -> str:
    return namespace.removeprefix(f"{TEAM}/")


def addressed(memory: Memory) -> Memory:
    """Return `memory` so that every clone of its repository sees it: its project becomes the
    repository's remote address, and its paths become relative to the root. Without a remote
    address, only the repository's worktrees see it.
    """
    address = address_of(memory.project)
    return for_worktrees(memory) if address is None else _owned_by(address, memory)


def for_worktrees(memory: Memory) -> Memory:
    """Move a memory from a linked worktree to the main worktree. Every worktree of the repository
    then sees it, even after the linked one is removed. Other memories are returned unchanged."""
    main_worktree = main_worktree_of(memory.project)
    return memory if main_worktree is None else _owned_by(main_worktree, memory)


def _owned_by(project: str, memory: Memory) -> Memory:
    root = memory.project
    return replace(
        memory,
        project=project,
        paths=tuple(
            relative_to(path, root) if path.startswith(f"{root}/") else path
            for path in memory.paths
        ),
    )


def for_team(memory: Memory) -> Memory:
    """Return `memory` as it is sent to the team: after `addressed()`, and without the session and
    the folders on this machine. A memory that belongs to a folder without a remote address cannot
    be shared and is returned unchanged.
    """
    shared = addressed(memory)
    if shared.project is not None and shared.project.startswith("/"):
        return memory
    return without_machine(shared)


def without_machine(memory: Memory) -> Memory:
    """Return `memory` without references to sessions and to folders on one machine."""
    return replace(
        memory,
        paths=tuple(path for path in memory.paths if not path.startswith(FOLDERS)),
        source="" if memory.source.startswith(FOLDERS) else memory.source,
        provenance=Provenance(door=memory.provenance.door),
    )
