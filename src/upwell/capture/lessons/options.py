"""The `lessons.*` settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonOptions:
    """- `model`: which model writes a session's lessons: none (""), that of the `agent` that held
      the session, or that of the `endpoint` in `llm.*`.
    - `daily_tokens`: how many tokens all sessions of a day may take, in and out.
    - `models`: the model of an agent, keyed by the agent's name, instead of its smallest one.
    """

    model: Literal["", "agent", "endpoint"] = ""
    daily_tokens: Annotated[int, Meta(ge=0)] = 300_000
    models: Mapping[str, str] = field(default_factory=dict)
