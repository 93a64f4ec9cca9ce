"""The interface between the dashboard's pages and the rest of upwell."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

Fields = Mapping[str, str]
"""The non-empty parameters of a request."""
View = Callable[[Fields], Awaitable[Mapping[str, Any]]]
"""Returns the values for one template."""
Action = Callable[[Fields], Awaitable[str]]
"""Changes something, and returns a sentence about the change for the user."""
Rows = Sequence[Mapping[str, Any]]


class Desk(Struct, frozen=True):
    """`views` maps the name of a template to its view, and `actions` maps NAME in the address
    `/dashboard/do/NAME` to an action. `stream` yields new events that match the fields."""

    views: Mapping[str, View]
    actions: Mapping[str, Action]
    stream: Callable[[Fields], AsyncIterator[Rows]]
