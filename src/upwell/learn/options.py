"""The `learn.*` settings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnOptions:
    """The `learn.*` settings. `auto_tune` enables all tuning. With `implicit_signals`, the observed
    use of memories counts as feedback."""

    auto_tune: bool = True
    implicit_signals: bool = True
