"""Adds another program's settings and servers to `config.toml`. This keeps the user's own settings,
comments and order, and writes nothing that upwell would reject.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit

from upwell.ground.errors import ConfigError
from upwell.ground.files import exclusively
from upwell.setup.config_file import read_document, write_document
from upwell.setup.servers import written

Key = tuple[str, ...]
SET_HERE = "already set in config.toml"


class Additions:
    """Additions to the file at `path`. `mistakes_in()` returns the mistakes in proposed content for
    the file.
    """

    def __init__(self, path: Path, mistakes_in: Callable[[str], Sequence[ConfigError]]) -> None:
        self._path = path
        self._mistakes_in = mistakes_in

    def obstacle(self, key: Key, value: Any) -> str:
        """Why a setting or a server's table cannot be written, or "" if it can.

        Raises:
            ConfigError: the file is not TOML.
        """
        document = read_document(self._path)
        if _is_set(document, key):
            return SET_HERE
        before = {error.message for error in self._mistakes_in(tomlkit.dumps(document))}
        _put(document, key, value)
        after = self._mistakes_in(tomlkit.dumps(document))
        new = [error for error in after if error.message not in before]
        return f"upwell does not accept it: {new[0].hint or new[0].message}" if new else ""

    def write(self, additions: Sequence[tuple[Key, Any]]) -> None:
        """Write all additions, except keys that have been set in the meantime.

        Raises:
            ConfigError: the file is not TOML. It stays unchanged.
            StoreUnwritable: the file cannot be written.
        """
        with exclusively(self._path):
            document = read_document(self._path)
            for key, value in additions:
                if not _is_set(document, key):
                    _put(document, key, value)
            write_document(self._path, document)


def _is_set(document: Mapping[str, Any], key: Key) -> bool:
    table: Any = document
    for part in key:
        if not isinstance(table, Mapping):
            # A value is in the section's place, so nothing can be added below it.
            return True
        if part not in table:
            return False
        table = table[part]
    return True


def _put(document: Any, key: Key, value: Any) -> None:
    table = document
    for part in key[:-1]:
        # A section without keys of its own, such as [tool] above [tool."fs__*"], needs no header.
        table = table.setdefault(part, tomlkit.table(is_super_table=True))
    table[key[-1]] = written(value) if isinstance(value, Mapping) else value
