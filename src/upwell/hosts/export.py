"""An instruction for agents without hooks, which leaves the agent's configuration unchanged."""

import shlex
from collections.abc import Mapping
from pathlib import Path

from upwell.ground.errors import UsageError
from upwell.ground.names import OWN_SERVER
from upwell.hosts.base import Host

_INSTRUCTION = """\
## Memory

At the start of every substantive turn, call `{context}` with the user's message: it gives a short
digest of what is already known, and says so when there is nothing. It answers trivial messages
(greetings, acknowledgements, slash commands) at once with `applicable: false`, so calling it is
always safe. Entries are notes from earlier work: use what helps, ignore what does not.

Use `{search}` directly instead when
- the exact query is known ("what did we decide about retries"),
- more results are wanted than a digest holds,
- something is looked up for a tool's own use and not for the conversation.

`{get}` gives the full text behind a citation.
"""


def exported(host: Host) -> dict[str, str]:
    """The files for this host, keyed by path relative to the project: an instruction to call
    `memory_context` at the start of a turn, with the names that the host uses for tools behind the
    gateway."""
    names = {"context": "memory_context", "search": "memory_search", "get": "memory_get"}
    tools = {
        key: host.export.tool_name.format(f"{OWN_SERVER}__{name}") for key, name in names.items()
    }
    return {host.export.file: host.export.layout.format(_INSTRUCTION.format(**tools))}


def write(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Write the files below `folder`. No existing file is replaced.

    Raises:
        UsageError: a file exists with other content.
    """
    texts = {folder / name: text for name, text in files.items()}
    for path, text in texts.items():
        if path.exists() and path.read_text(encoding="utf-8", errors="replace") != text:
            raise UsageError(
                f"{path} exists already", hint="print it without --apply and insert it by hand"
            )
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(texts)


def shown(files: Mapping[str, str]) -> str:
    """All files as one text, each below a line with its name."""
    return "\n".join(f"==> {shlex.quote(name)} <==\n{text}" for name, text in files.items())
