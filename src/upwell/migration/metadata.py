"""The free-form metadata that some programs store with a memory."""

import json
from collections.abc import Mapping
from typing import Any

from upwell.migration.base import string

_PROJECTS = ("project", "project_path", "repository", "repo", "cwd")


def metadata_of(value: object) -> Mapping[str, Any]:
    """A mapping, or the JSON object in a text; empty for anything else."""
    if isinstance(value, str) and value:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def project_in(metadata: Mapping[str, Any]) -> tuple[str | None, str]:
    """The folder of the project and "", or else None and its name; the name is "" if unknown."""
    stated = [string(metadata.get(name)) for name in _PROJECTS]
    for value in filter(None, stated):
        return (value, "") if value.startswith("/") else (None, value)
    return None, ""
