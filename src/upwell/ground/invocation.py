"""How to start a program that answers one question."""

from collections.abc import Mapping

from msgspec import Struct, field


class Invocation(Struct, frozen=True, kw_only=True):
    """The arguments after the program's name, further variables, and `files` to write into the
    program's working directory, keyed by path. The program reads the question from stdin."""

    args: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
