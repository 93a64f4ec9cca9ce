"""What a hook decided while no daemon ran: lines in a file of the home, taken up by the next
upwell that opens it. Stdlib only, and little of it."""

import json
import os
from collections.abc import Mapping

NAME = "cold.jsonl"
MAX_BYTES = 262_144


def leave(home: str, decision: Mapping[str, object]) -> None:
    """Append a decision, unless too many wait. What cannot be written is not counted, no more."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(os.path.join(home, NAME), flags, 0o600)
    except OSError:
        return
    try:
        if os.fstat(descriptor).st_size < MAX_BYTES:
            os.write(descriptor, json.dumps(decision).encode() + b"\n")
    except OSError:
        return
    finally:
        os.close(descriptor)


def taken(home: str) -> list[Mapping[str, object]]:
    """Everything that waits, each once: whoever asks first has it."""
    path = os.path.join(home, NAME)
    mine = f"{path}.{os.getpid()}"
    try:
        os.rename(path, mine)
        descriptor = os.open(mine, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            lines = file.read(2 * MAX_BYTES).splitlines()
        os.unlink(mine)
    except OSError:
        return []
    return [found for line in lines if (found := _read(line)) is not None]


def _read(line: bytes) -> Mapping[str, object] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
