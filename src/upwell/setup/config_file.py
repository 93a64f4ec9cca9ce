"""Reads and changes `config.toml`, keeping its comments and order."""

from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from upwell.ground.errors import ConfigError
from upwell.ground.files import exclusively, read_regular_file, write_atomically, writing
from upwell.ground.home import Home, default_home


def set_setting(
    section: str, name: str, value: bool | int | float | str, home: Path | None = None
) -> Path:
    """Write `name = value` to `[section]`.

    Raises:
        ConfigError: the file is not TOML. It stays unchanged.
        StoreUnwritable: the file cannot be written.
    """
    files = Home(home or default_home()).prepare()
    with exclusively(files.config_file):
        document = read_document(files.config_file)
        document.setdefault(section, tomlkit.table())[name] = value
        write_document(files.config_file, document)
    return files.config_file


def read_document(path: Path) -> tomlkit.TOMLDocument:
    """`config.toml` with its comments; empty if the file does not exist.

    Raises:
        ConfigError: the file is not TOML or cannot be read.
    """
    try:
        return tomlkit.parse(read_regular_file(path))
    except FileNotFoundError:
        return tomlkit.document()
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is not TOML: {error}",
            origin=str(path),
            hint="fix it first; upwell did not change it",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}",
            origin=str(path),
            hint="check its permissions",
        ) from error


def write_document(path: Path, document: tomlkit.TOMLDocument) -> None:
    """Replace the file atomically.

    Raises:
        StoreUnwritable: the file cannot be written.
    """
    with writing(path):
        write_atomically(path, tomlkit.dumps(document))
