"""How to ask an agent's model one question without a terminal: its command line, and its output.

Every run uses the vendor's smallest model, and has no tools, MCP servers or hooks. Where the agent
can be told not to keep the session, it is told so. Each host's record states how that is done.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from upwell.ground.errors import ConfigError, LlmError
from upwell.ground.invocation import Invocation
from upwell.hosts.installation import Installation
from upwell.hosts.servers import ServerFile

SYSTEM_FILE = "instructions.md"


class HeadlessQuestion(Struct, frozen=True, kw_only=True):
    """What a run needs to know: the system message, the model ("" for the user's default), the
    folder in which the agent runs, and the names of the user's MCP servers, which must not start.
    """

    system: str
    model: str
    folder: Path
    servers: Sequence[str] = ()


class Headless(Struct, frozen=True, kw_only=True):
    """How a host answers one question.

    - `program` is its name on the PATH.
    - `model` is the vendor's smallest model, "" if the host has no name for it.
    - `invoke` returns the arguments (without the program), variables and files of a run.
    - `answer` reads what the run prints: the text ("" if there is none), and the tokens in and out
      (0 if unknown). Raises LlmError for an error.
    - `servers` is the file with the user's MCP servers, if the host's record has none.
    """

    program: str
    model: str
    invoke: Callable[[HeadlessQuestion], Invocation]
    answer: Callable[[str], tuple[str, int, int]]
    servers: ServerFile | None = None


def server_names(file: ServerFile | None, installation: Installation) -> list[str]:
    """The names of the servers in an agent's own file; none if the file cannot be read."""
    if file is None:
        return []
    try:
        text = file.path(installation).read_text(encoding="utf-8")
        return list(dict.fromkeys(entry.name for entry in file.entries(text)))
    except (OSError, ValueError, ConfigError):
        return []


def events_in(output: str) -> Iterator[Mapping[str, Any]]:
    """The JSON objects in an output of JSON lines."""
    for line in output.splitlines():
        try:
            event = json.loads(line) if line.startswith("{") else None
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield event


def document_in(output: str) -> Mapping[str, Any]:
    """The JSON object that an output consists of, after any warnings.

    Raises:
        LlmError: there is none.
    """
    try:
        document = json.loads(output[output.index("{") :])
    except (ValueError, RecursionError) as error:
        raise LlmError("the agent did not print a JSON object") from error
    return document if isinstance(document, dict) else {}


def at(value: Any, *names: str) -> Any:
    """The value under these names, one inside the other; None if there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def text_at(value: Any, *names: str) -> str:
    """The text under these names; "" for anything else."""
    found = at(value, *names)
    return found if isinstance(found, str) else ""


def number_at(value: Any, *names: str) -> int:
    """The number under these names; 0 for anything else."""
    found = at(value, *names)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0
