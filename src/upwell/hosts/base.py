"""The record of an agent host (`Host`): everything that upwell needs to know about it.

A part of it (`Headless`) says how to ask the agent's model one question without a terminal: its
command line, and its output. Every run uses the vendor's smallest model, and has no tools, MCP
servers or hooks. Where the agent can be told not to keep the session, it is told so. Each host's
record states how that is done.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from upwell.ground.errors import ConfigError, LlmError
from upwell.ground.llm import Invocation
from upwell.hosts.events import HostEvents
from upwell.hosts.installation import HookFile, Installation
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


class Export(Struct, frozen=True, kw_only=True):
    """The output of `upwell hook export`: an instruction for agents without hooks.

    - `tool_name` is the host's name for a tool of ours. `{}` stands for our own name for the tool.
    - `file` holds the instruction; its path is relative to the project. `layout` is its content,
      with `{}` for the instruction.
    - `plugin_tool_name` is the name of a tool that upwell's plugin brings, if it differs.
    """

    tool_name: str
    file: str = "AGENTS.md"
    layout: str = "{}"
    plugin_tool_name: str = ""


class AutoLoaded(Struct, frozen=True, kw_only=True):
    """The instruction files that a host loads into every session by itself. The agent already knows
    their content, so upwell does not repeat it. `folder` and `scoped` are glob patterns, the others
    plain paths.

    - `user` paths are relative to the user's home folder.
    - `folder` patterns are relative to the working directory and every folder above it, up to the
      root of the repository. `fallback` paths apply in a folder where no `folder` pattern
      matches.
    - `scoped` patterns are relative to the same folders. A file's front matter may limit it to some
      paths (`globs`, `applyTo`, `paths`).
    - `follows_imports`: `@path` in a file includes another file. A file of the project may include
      only files of the project, because the host asks before it loads others. A file in `user` may
      include files anywhere if `user_imports_anywhere` is set, or else only files beside it.
    """

    user: tuple[str, ...] = ()
    folder: tuple[str, ...] = ()
    fallback: tuple[str, ...] = ()
    scoped: tuple[str, ...] = ()
    follows_imports: bool = False
    user_imports_anywhere: bool = False


class Host(Struct, frozen=True, kw_only=True):
    """One agent host.

    - `name` is the host's name on the command line. `title` is the product's name.
    - `writers` are the agent's tools that change files, each with upwell's name for it (`Edit`,
      `Write`). `recorded_tools` are further names of tools that occur only in transcripts, for
      example from earlier versions.
    - `transcripts` are glob patterns, relative to the user's home folder, of the files in which the
      host records its sessions. Their format has the host's name.
    - `servers` is None if upwell does not touch the agent's MCP servers.
    - `clients` are lower-case patterns for the names by which the host introduces itself to MCP
      servers (`clientInfo.name`).
    - `hooks_off` returns the setting that stops the host from running the user's hooks in a folder,
      or "" if they run. None if no such setting is known.
    - `repeats_starts`: the host reports the start of a session again at each of its prompts.
    - `headless` is how to ask the host's model one question, None if that is not possible.
    - `shares_hooks`: the host also runs another host's hooks, or another host runs its hooks. One
      event may therefore arrive under several host names.
    """

    name: str
    title: str
    events: HostEvents
    hooks: HookFile
    export: Export
    writers: Mapping[str, str]
    recorded_tools: Mapping[str, str] = field(default_factory=dict)
    servers: ServerFile | None = None
    auto_loaded: AutoLoaded = AutoLoaded()
    transcripts: tuple[str, ...] = ()
    hooks_off: Callable[[Installation, Path], str] | None = None
    repeats_starts: bool = False
    headless: Headless | None = None
    shares_hooks: bool = False
    clients: tuple[str, ...] = ()
