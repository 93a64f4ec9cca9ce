"""The token of a home: who has it may use its HTTP doors."""

import secrets
from pathlib import Path

from upwell.ground.errors import StoreUnwritable
from upwell.ground.files import make_once, read_whole

MIN_CHARS = 16


def token_of(path: Path) -> str:
    """The token in the file at `path`, made at first (0600) and kept from then on.

    Raises:
        StoreUnwritable: it cannot be read or written, or is too short to protect anything.
    """
    try:
        make_once(path, f"{secrets.token_urlsafe(32)}\n".encode())
        token = read_whole(path).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreUnwritable(
            f"cannot use {path}: {error}", hint="remove it: it is made anew"
        ) from error
    if len(token) < MIN_CHARS:
        raise StoreUnwritable(
            f"the token in {path} has fewer than {MIN_CHARS} characters",
            hint="remove the file: a new one is made",
        )
    return token
