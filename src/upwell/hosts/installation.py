"""The values that upwell writes into agents' configuration files, and the interfaces of those
files.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAddress:
    """The port on 127.0.0.1 at which the daemon accepts hooks over HTTP, and its token."""

    port: int
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The content for agents' files, and the user whose files they are.

    - `user_folder` and `environment` belong to the user; they decide where an agent's files are.
    - `command` is the command to run, without the host's name; `socket` is the daemon's socket.
    - `home` is upwell's home if the command must contain it, "" for the usual place.
    - `guards`: the user has a guard, so hooks that run before a tool are also installed.
    - `http`, if set, installs HTTP requests instead of commands for hosts that support them.
    """

    user_folder: Path
    environment: Mapping[str, str]
    command: tuple[str, ...]
    socket: str = ""
    home: str = ""
    guards: bool = False
    http: HttpAddress | None = None

    @property
    def hook_command(self) -> tuple[str, ...]:
        """The command line of a hook, without the host's name that follows."""
        return (*self.command, "--home", self.home) if self.home else self.command

    def folder_named(self, variable: str, default: str) -> Path:
        """The folder that an environment variable names, else `default` in the user's home
        folder."""
        value = self.environment.get(variable, "")
        return Path(os.path.expanduser(value)) if value else self.user_folder / default


class ConfigFile(Protocol):
    """A configuration file of an agent, into which our entries are written."""

    @property
    def next_step(self) -> str:
        """The user's next step after an installation; "" if there is none."""
        ...

    def path(self, installation: Installation) -> Path: ...

    def is_present(self, installation: Installation) -> bool:
        """True if the agent is installed on this machine."""
        ...

    def with_ours(self, text: str, installation: Installation) -> str:
        """`text` ("" for no file) with exactly the entries of this installation.

        Raises:
            ConfigError: the file does not have the expected structure.
        """
        ...

    def without_ours(self, text: str, backups: Sequence[str] = ()) -> str:
        """`text` without our entries, "" if it contained nothing else. `backups` are earlier
        versions of the file; entries that the installation moved elsewhere are restored from
        them."""
        ...


class HookFile(ConfigFile, Protocol):
    """The file in which an agent's hooks are configured."""

    @property
    def guard_matchers(self) -> Mapping[str, str]:
        """The matchers of events before a tool call, whose hooks are installed only if the user has
        a guard; empty for a host that cannot refuse a call."""
        ...

    @property
    def http_setup(self) -> str:
        """The environment that HTTP hooks need, with `{token_file}` for the file of the token; ""
        for a host whose hooks cannot be HTTP requests."""
        ...

    def command(self, text: str, event: str) -> Sequence[str]:
        """Our command line that the host runs for `event`, according to this content of its file;
        empty if there is none.

        Raises:
            ConfigError: the file does not have the expected structure.
        """
        ...
