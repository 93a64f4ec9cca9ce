"""The interface between the dashboard's pages and the rest of upwell."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Fields = Mapping[str, str]
"""The parameters of a request that are not empty."""
View = Callable[[Fields], Awaitable[Mapping[str, Any]]]
"""Returns the values of one template."""
Action = Callable[[Fields], Awaitable[str]]
"""Changes something, and returns a sentence about the change for the user."""
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Desk:
    """The `views` by the names of their templates, the `actions` by the names in their paths, and
    the `stream` of new events that match the fields."""

    views: Mapping[str, View]
    actions: Mapping[str, Action]
    stream: Callable[[Fields], AsyncIterator[Rows]]
