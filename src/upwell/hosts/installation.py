"""What upwell writes into agents' configuration files, and the interfaces to those files."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct


class HttpAddress(Struct, frozen=True, kw_only=True):
    """The port on 127.0.0.1 where the daemon accepts hooks over HTTP, and the token they need."""

    port: int
    token: str


class Installation(Struct, frozen=True, kw_only=True):
    """What to write into agents' files, and whose files they are.

    - `user_folder` and `environment` decide where an agent's files are.
    - `command` runs a hook or server. `socket` is the daemon's socket.
    - `home` is upwell's home folder if the command has to name it, or "" for the default.
    - `guards`: the user has a guard (a rule that blocks tool calls), so hooks that run before a
      tool are installed too.
    - `http`, if set, makes hosts that support HTTP hooks use them instead of commands.
    """

    user_folder: Path
    environment: Mapping[str, str]
    command: tuple[str, ...]
    socket: str = ""
    home: str = ""
    guards: bool = False
    http: HttpAddress | None = None

    @classmethod
    def of_user(cls, environment: Mapping[str, str]) -> "Installation":
        """This user's files, to read them."""
        return cls(user_folder=Path.home(), environment=environment, command=())

    @property
    def hook_command(self) -> tuple[str, ...]:
        """The command line of a hook, without the host's name, which follows."""
        return (*self.command, "--home", self.home) if self.home else self.command

    def folder_named(self, variable: str, default: str) -> Path:
        """The folder that the environment variable names, or else `default` in the user's home."""
        value = self.environment.get(variable, "")
        return Path(os.path.expanduser(value)) if value else self.user_folder / default


class AgentFile(Protocol):
    """An agent's configuration file, to which our entries are added. What takes the file's `text`
    raises `ConfigError` if that does not have the expected structure."""

    @property
    def next_step(self) -> str:
        """What the user has to do after an installation, or "" for nothing."""
        ...

    def path(self, installation: Installation) -> Path: ...

    def is_present(self, installation: Installation) -> bool:
        """True if the agent is installed on this machine."""
        ...

    def with_ours(self, text: str, installation: Installation) -> str:
        """Return `text` with the entries of this installation. A server's entry that already runs
        upwell, even another copy of it, stays as it is."""
        ...

    def moved(self, text: str) -> str:
        """Return the servers in `text` that `with_ours()` moves to upwell, in the file's format, or
        "" if it moves none."""
        ...

    def without_ours(self, text: str, moved: Sequence[str] = ()) -> str:
        """Return `text` without our entries, or "" if nothing else remains. `moved` are results of
        `moved()`, whose servers are restored."""
        ...


class HookFile(AgentFile, Protocol):
    """The file in which an agent's hooks are configured."""

    @property
    def guard_matchers(self) -> Mapping[str, str]:
        """The matchers for hooks that run before a tool call. These hooks are installed only if the
        user has a guard. Empty for a host that cannot block a call."""
        ...

    @property
    def http_setup(self) -> str:
        """The shell command that prepares the environment for HTTP hooks, with `{token_file}` for
        the path of the token file. Empty for a host without HTTP hooks."""
        ...

    def command(self, text: str, event: str) -> Sequence[str]:
        """The command line that the host runs for `event` according to `text`, the content of the
        file. Empty if there is none."""
        ...
