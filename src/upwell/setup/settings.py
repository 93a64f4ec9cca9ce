"""Sets a key of `config.toml`. Comments and order stay."""

from pathlib import Path

import tomlkit

from upwell.ground.files import exclusively
from upwell.ground.home import Home, default_home
from upwell.setup.servers import read_document, write_document


def set_setting(
    section: str, name: str, value: bool | int | float | str, home: Path | None = None
) -> Path:
    """Write `name = value` into `[section]`. Returns the path of the file.

    Raises:
        ConfigError: the file is not TOML; it stays unchanged.
    """
    files = Home(home or default_home()).prepare()
    with exclusively(files.config_file):
        document = read_document(files.config_file)
        document.setdefault(section, tomlkit.table())[name] = value
        write_document(files.config_file, document)
    return files.config_file
