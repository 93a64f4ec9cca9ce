"""How large an agent's context window is, and what that means for how much may be said.

Windows of common models in tokens, by the longest prefix of their name; providers' published
figures of 2026. An unknown model has the default window.
"""

from collections.abc import Mapping
from dataclasses import dataclass

SMALL_WINDOW = 32_000
LARGE_WINDOW = 200_000
RESULT_TOKENS = {"small": 1500, "default": 4000, "large": 8000}
"""Tokens of a response by window: up to 32 K, up to 200 K, above (DESIGN 4.3)."""

WINDOWS: Mapping[str, int] = {
    "claude": 200_000,
    "claude-opus-4-6": 1_000_000,
    "claude-sonnet-4-6": 1_000_000,
    "claude-opus-5": 1_000_000,
    "claude-sonnet-5": 1_000_000,
    "codestral": 256_000,
    "command-a": 256_000,
    "deepseek": 128_000,
    "gemini": 1_048_576,
    "gemma": 128_000,
    "glm": 200_000,
    "gpt-3.5": 16_385,
    "gpt-4": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-4o": 128_000,
    "gpt-5": 400_000,
    "gpt-oss": 131_072,
    "grok": 256_000,
    "kimi": 256_000,
    "llama-3": 128_000,
    "llama-4": 1_000_000,
    "llama3": 8_192,
    "llama3.1": 128_000,
    "llama3.2": 128_000,
    "mistral": 128_000,
    "mixtral": 32_768,
    "o1": 200_000,
    "o3": 200_000,
    "o4": 200_000,
    "phi": 16_384,
    "phi-4": 16_384,
    "qwen": 32_768,
    "qwen3": 131_072,
    "qwen3-coder": 262_144,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """`agent.*`: the window in tokens, or the model's name to look it up by."""

    context_window: int | None = None
    model: str = ""


def window_in(options: AgentOptions) -> int | None:
    """The window given, or the model's; None for an unknown one."""
    return options.context_window or window_of(options.model)


def size_of(window: int | None) -> str:
    """`small`, `default` or `large`, by the window in tokens."""
    if window is None:
        return "default"
    return "small" if window <= SMALL_WINDOW else "large" if window > LARGE_WINDOW else "default"


def window_of(model: str) -> int | None:
    """The window of a model by the longest prefix that is known; None for an unknown one.

    A provider's prefix (`anthropic/…`) does not matter.
    """
    name = model.lower().rpartition("/")[2]
    fitting = [prefix for prefix in WINDOWS if name.startswith(prefix)]
    return WINDOWS[max(fitting, key=len)] if fitting else None
