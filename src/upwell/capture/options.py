"""The `lessons.*` and `capture.*` settings."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonOptions:
    """The `lessons.*` settings.

    - `model`: which model writes a session's lessons: none (""), that of the `agent` that held
      the session, or that of the `endpoint` in `llm.*`.
    - `daily_tokens`: how many tokens all sessions of a day may take, in and out.
    """

    model: Literal["", "agent", "endpoint"] = ""
    daily_tokens: Annotated[int, Meta(ge=0)] = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """The `capture.*` settings. If `ask_agent` is set, an agent that may have learned something in
    a turn is asked to store it when the turn ends.
    """

    ask_agent: bool = False
