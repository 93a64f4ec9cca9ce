"""Turn a section, or a passage of one, into a memory."""

import json

from msgspec import Struct

from upwell.ground.types.memory import Memory, Provenance, Trust
from upwell.memory.records import stamped


class FilePlace(Struct, frozen=True):
    """The fields that all sections of a file share. `tags` is a JSON list. `changed_at` is in epoch
    seconds."""

    cited: str
    project: str | None
    namespace: str
    tags: str
    changed_at: float


def section_memory(
    id: str,
    text: str,
    lines: tuple[int, int],
    file: FilePlace,
    tenant: str,
    paths: tuple[str, ...] = (),
) -> Memory:
    """Build a memory from the `text` on these `lines` of a file."""
    memory = Memory(
        text=text,
        id=id,
        namespace=file.namespace,
        tags=tuple(json.loads(file.tags)),
        paths=paths,
        project=file.project,
        tenant=tenant,
        source=file.cited,
        lines=lines,
        provenance=Provenance(door="import"),
        trust=Trust.IMPORTED,
        created_at=file.changed_at,
        updated_at=file.changed_at,
        viewed_at=file.changed_at,
    )
    return stamped(memory, file.changed_at)
