"""Wires the parts that import the data of other programs."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from upwell.config import Config, read
from upwell.ground.errors import ConfigError
from upwell.memory.library import Library
from upwell.migration.base import ImportedServer, Setting
from upwell.migration.moving import MovingIn
from upwell.setup.additions import SET_HERE, Additions, Key


class ConfigWriter:
    """Writes another program's settings and servers to `config.toml`."""

    def __init__(self, additions: Additions) -> None:
        self._additions = additions

    def obstacle(self, item: Setting | ImportedServer) -> str:
        why = self._additions.obstacle(*_addition(item))
        is_server = isinstance(item, ImportedServer) and why == SET_HERE
        return "a server with this name is already in config.toml" if is_server else why

    def write(self, settings: Sequence[Setting], servers: Sequence[ImportedServer]) -> None:
        items: list[Setting | ImportedServer] = [*servers, *settings]
        self._additions.write([_addition(item) for item in items])


def moving_in(config: Config, library: Library) -> MovingIn:
    return MovingIn(library, ConfigWriter(Additions(config.home.config_file, _mistakes_in)))


def _addition(item: Setting | ImportedServer) -> tuple[Key, object]:
    if isinstance(item, ImportedServer):
        return ("server", item.name), item.table
    return item.key, item.value


def _mistakes_in(content: str) -> list[ConfigError]:
    with TemporaryDirectory(prefix="upwell-") as folder:
        path = Path(folder, "config.toml")
        path.write_text(content, encoding="utf-8")
        mistakes = read(Path(folder), environment={})[1]
    for mistake in mistakes:
        mistake.message = mistake.message.replace(str(path), path.name)
    return mistakes
