"""The token of a home, which opens its HTTP doors."""

import secrets
from pathlib import Path

from upwell.ground.errors import StoreUnwritable
from upwell.ground.files import create_once, read_regular_file

MIN_CHARS = 16


def token_of(path: Path) -> str:
    """The token in the file at `path`. The first call creates the file with mode 0600.

    Raises:
        StoreUnwritable: the file cannot be read or written, or the token is too short.
    """
    try:
        create_once(path, f"{secrets.token_urlsafe(32)}\n".encode())
        token = read_regular_file(path).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreUnwritable(
            f"cannot use {path}: {error}", hint="remove the file; upwell creates a new one"
        ) from error
    if len(token) < MIN_CHARS:
        raise StoreUnwritable(
            f"the token in {path} has fewer than {MIN_CHARS} characters",
            hint="remove the file; upwell creates a new one",
        )
    return token
