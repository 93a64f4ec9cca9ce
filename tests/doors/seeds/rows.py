"""A mark that ties a test to one row of `tests/NAMES.md`."""

from collections.abc import Callable
from typing import Any

FIXTURES = {
    "CLI": {"upwell"},
    "MCP": {"agent", "gateway"},
    "hook": {"hook"},
    "HTTP": {"address"},
    "Python": {"lab"},
}
"""Door → the fixtures that go through it: the command line as a process, MCP calls over the
gateway, an event posted to the gateway's `/hook`, other HTTP requests to the gateway, and the app
in this process."""


def row[Test: Callable[..., Any]](name: str) -> Callable[[Test], Test]:
    """Mark the test for one row of `tests/NAMES.md`. `name` is the second column of the row.

    `tests/test_names_page.py` reads these marks. Each row has one test, with a fixture of the
    row's door.
    """
    del name
    return lambda test: test
