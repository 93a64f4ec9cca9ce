"""The form in which a memory leaves this machine for a store that others read, too."""

from dataclasses import replace

from upwell.ground.remote_address import address_of
from upwell.ground.text.anchors import relative_to
from upwell.ground.types.memory import Memory


def addressed(memory: Memory) -> Memory:
    """Return `memory` with the remote address of its repository as the project, and its files
    relative to the repository's root, so that it belongs to every clone. A memory of a folder
    without a remote address is returned unchanged.
    """
    root = memory.project
    address = address_of(root)
    if address is None:
        return memory
    return replace(
        memory,
        project=address,
        paths=tuple(
            relative_to(path, root) if path.startswith(f"{root}/") else path
            for path in memory.paths
        ),
    )
