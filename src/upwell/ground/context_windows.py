"""The context windows of models, and the size of responses for each window.

`WINDOWS` maps prefixes of model names to tokens, as published by the providers in 2026; the longest
prefix applies. Unknown models get the default size.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

SMALL_WINDOW = 32_768
LARGE_WINDOW = 200_000
RESULT_TOKENS = {"small": 1500, "default": 4000, "large": 8000}
"""The tokens of a response for windows up to 32 K, up to 200 K, and above (seed 000)."""

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
    """`agent.*`: the agent behind the gateway.

    `context_window`: its window in tokens. `model`: its model, to look up the window and the price.
    `input_price`: US dollars per million input tokens; 0 takes the price from a table.
    """

    context_window: int | None = None
    model: str = ""
    input_price: Annotated[float, Meta(ge=0)] = 0.0


def window_in(options: AgentOptions) -> int | None:
    """Return the configured window, or that of the configured model; None if unknown."""
    return options.context_window or window_of(options.model)


def size_of(window: int | None) -> str:
    """Return `small`, `default` or `large` for a window in tokens."""
    if window is None:
        return "default"
    return "small" if window <= SMALL_WINDOW else "large" if window > LARGE_WINDOW else "default"


def window_of(model: str) -> int | None:
    """Return the window of a model by the longest known prefix of its name; None if unknown.

    A provider prefix (`anthropic/…`) is ignored.
    """
    name = model.lower().rpartition("/")[2]
    fitting = [prefix for prefix in WINDOWS if name.startswith(prefix)]
    return WINDOWS[max(fitting, key=len)] if fitting else None
