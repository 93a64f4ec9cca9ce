"""The `learn.*` settings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnOptions:
    """The `learn.*` settings. `auto_tune` enables all tuning, by ratings and by the observed use of
    memories."""

    auto_tune: bool = True
