"""The mark of a test that uses one name of the seeds through its door."""

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
    """Mark the test of the row of `docs/names.md` that has `name` in its second column.

    `tests/test_names_page.py` reads these marks: each row has one test, with a fixture of its
    door.
    """
    del name
    return lambda test: test
