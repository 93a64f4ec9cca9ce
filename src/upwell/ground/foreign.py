"""Read files written by users and other programs. Every failure is a `UsageError` with a hint."""

import json
from pathlib import Path
from typing import Any

from upwell.ground.errors import UsageError
from upwell.ground.files import read_regular_file

MAX_FILE_BYTES = 64_000_000


def read_text(path: Path, max_bytes: int = MAX_FILE_BYTES) -> str:
    """Return the text of a file, without a byte order mark.

    Raises:
        UsageError: the file is missing, not a regular file, too large, or not UTF-8.
    """
    try:
        if path.stat().st_size > max_bytes:
            raise too_large(path, max_bytes)
        return read_regular_file(path).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {(error.strerror or '').lower()}",
            hint="check the path and its permissions",
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"cannot read {path}: not UTF-8 (byte {error.start})", hint="convert it to UTF-8"
        ) from error


def read_json(path: Path, max_bytes: int = MAX_FILE_BYTES) -> Any:
    """Return the value of a JSON file.

    Raises:
        UsageError: as for `read_text()`, or the content is not JSON.
    """
    text = read_text(path, max_bytes)
    try:
        return json.loads(text)
    except RecursionError as error:
        raise UsageError(
            f"cannot read {path}: nested too deeply", hint="upwell cannot use this file"
        ) from error
    except ValueError as error:
        raise UsageError(f"cannot read {path}: not JSON: {error}", hint="fix the file") from error


def too_large(path: Path, max_bytes: int) -> UsageError:
    """Return the error for a file that is larger than `max_bytes`."""
    return UsageError(
        f"cannot read {path}: it is larger than {max_bytes:,} bytes", hint="split the file"
    )
