"""The context windows of models, and the size of responses for each window.

`WINDOWS` is the only table of windows. It maps prefixes of model names (with dashes in place of
dots) to window sizes in tokens, as the providers published them up to November 2026. The longest
matching prefix applies. Unknown models get the default size.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct

SMALL_WINDOW = 32_768
LARGE_WINDOW = 200_000
RESULT_TOKENS = {"small": 1500, "default": 4000, "large": 8000}
"""The budget of a response in tokens: `small` for windows up to 32 K, `default` up to 200 K, and
`large` above. tests/NAMES.md explains where these values come from."""
READ_TOKENS = 10_000
"""A file that an agent reads is delivered whole up to this size."""
READ_SHARE = 0.25
"""The share of a known window that one such file may fill."""

WINDOWS: Mapping[str, int] = {
    # Anthropic
    "claude": 200_000,
    "claude-fable-5": 1_000_000,
    "claude-haiku-5": 1_000_000,
    "claude-instant": 100_000,
    "claude-mythos": 1_000_000,
    "claude-opus-4-6": 1_000_000,
    "claude-opus-4-7": 1_000_000,
    "claude-opus-4-8": 1_000_000,
    "claude-opus-5": 1_000_000,
    "claude-sonnet-4-6": 1_000_000,
    "claude-sonnet-5": 1_000_000,
    "claude-v": 100_000,
    # OpenAI
    "chatgpt-4o": 128_000,
    "codex-mini": 200_000,
    "gpt-3-5": 16_385,
    "gpt-4": 8_192,
    "gpt-4-0125": 128_000,
    "gpt-4-1": 1_047_576,
    "gpt-4-1106": 128_000,
    "gpt-4-32k": 32_768,
    "gpt-4-5": 128_000,
    "gpt-4-turbo": 128_000,
    "gpt-4-vision": 128_000,
    "gpt-4o": 128_000,
    "gpt-5": 400_000,
    "gpt-5-1-chat": 128_000,
    "gpt-5-2-chat": 128_000,
    "gpt-5-3-chat": 128_000,
    "gpt-5-3-codex-spark": 128_000,
    "gpt-5-4": 1_050_000,
    "gpt-5-4-mini": 400_000,
    "gpt-5-4-nano": 400_000,
    "gpt-5-5": 1_050_000,
    "gpt-5-6": 1_050_000,
    "gpt-5-chat": 128_000,
    "gpt-6": 1_050_000,
    "gpt-audio": 128_000,
    "gpt-oss": 131_072,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o1-preview": 128_000,
    "o3": 200_000,
    "o4": 200_000,
    # Google
    "gemini": 1_048_576,
    "gemini-1-0": 32_760,
    "gemini-2-5-computer-use": 128_000,
    "gemini-robotics": 131_072,
    "gemma": 8_192,
    "gemma-3": 131_072,
    "gemma-4": 262_144,
    "gemma-4-e": 131_072,
    "gemma3": 131_072,
    "gemma4": 262_144,
    # xAI
    "grok": 131_072,
    "grok-4": 256_000,
    "grok-4-1": 2_000_000,
    "grok-4-20": 1_000_000,
    "grok-4-3": 1_000_000,
    "grok-4-5": 500_000,
    "grok-4-6": 500_000,
    "grok-4-7": 500_000,
    "grok-4-fast": 2_000_000,
    "grok-build": 256_000,
    "grok-code": 256_000,
    # DeepSeek
    "deepseek": 131_072,
    "deepseek-coder": 16_384,
    "deepseek-coder-v2": 163_840,
    "deepseek-flash": 1_000_000,
    "deepseek-v4": 1_000_000,
    # Moonshot, Zhipu, MiniMax
    "glm": 128_000,
    "glm-4-6": 200_000,
    "glm-4-7": 200_000,
    "glm-5": 200_000,
    "glm-5-2": 1_048_576,
    "glm-5-3": 1_048_576,
    "kimi": 131_072,
    "kimi-k2-0905": 262_144,
    "kimi-k2-5": 262_144,
    "kimi-k2-6": 262_144,
    "kimi-k2-7": 262_144,
    "kimi-k2-8": 1_000_000,
    "kimi-k2-instruct-0905": 262_144,
    "kimi-k2-thinking": 262_144,
    "kimi-k3": 1_048_576,
    "minimax": 196_608,
    "minimax-m1": 1_000_000,
    "minimax-m3": 1_000_000,
    # Alibaba
    "qwen": 32_768,
    "qwen-coder": 1_000_000,
    "qwen-flash": 1_000_000,
    "qwen-plus": 131_072,
    "qwen-plus-2025-07": 1_000_000,
    "qwen-plus-2025-09": 1_000_000,
    "qwen-plus-latest": 1_000_000,
    "qwen-turbo": 131_072,
    "qwen-turbo-2024-11": 1_000_000,
    "qwen-turbo-2025": 1_000_000,
    "qwen-turbo-latest": 1_000_000,
    "qwen3": 40_960,
    "qwen3-235b-a22b": 262_144,
    "qwen3-30b-a3b": 131_072,
    "qwen3-30b-a3b-instruct-2507": 262_144,
    "qwen3-5": 262_144,
    "qwen3-6": 262_144,
    "qwen3-7": 1_000_000,
    "qwen3-8": 1_000_000,
    "qwen3-8-27b": 262_144,
    "qwen3-8b": 40_960,
    "qwen3-coder": 262_144,
    "qwen3-coder-flash": 1_000_000,
    "qwen3-coder-plus": 1_000_000,
    "qwen3-max": 262_144,
    "qwen3-next": 262_144,
    "qwen3-vl": 262_144,
    "qwen3-vl-32b": 131_072,
    "qwq": 131_072,
    # Meta
    "codellama": 16_384,
    "llama-2": 4_096,
    "llama-3": 8_192,
    "llama-3-1": 131_072,
    "llama-3-2": 131_072,
    "llama-3-3": 131_072,
    "llama-4": 1_048_576,
    "llama2": 4_096,
    "llama3": 8_192,
    "llama3-1": 131_072,
    "llama3-2": 131_072,
    "llama3-3": 131_072,
    "llama4": 1_048_576,
    # Mistral
    "codestral": 256_000,
    "codestral-2": 128_000,
    "codestral-22b": 32_768,
    "codestral-2405": 32_768,
    "codestral-25": 256_000,
    "devstral": 262_144,
    "devstral-small-2505": 131_072,
    "magistral": 131_072,
    "ministral": 131_072,
    "ministral-3": 262_144,
    "ministral-3b": 131_072,
    "mistral": 32_768,
    "mistral-large": 131_072,
    "mistral-large-2402": 32_768,
    "mistral-code": 256_000,
    "mistral-large-2512": 262_144,
    "mistral-large-3": 262_144,
    "mistral-large-4": 1_048_576,
    "mistral-medium": 131_072,
    "mistral-medium-2604": 262_144,
    "mistral-medium-3-5": 262_144,
    "mistral-medium-latest": 262_144,
    "mistral-nemo": 131_072,
    "mistral-small": 131_072,
    "mistral-small-24b": 32_768,
    "mistral-small-2402": 32_768,
    "mistral-small-2603": 262_144,
    "mistral-small-latest": 262_144,
    "mistral-vibe": 262_144,
    "mixtral": 32_768,
    "mixtral-8x22b": 65_536,
    "pixtral": 131_072,
    # Cohere, AI21, Amazon, Microsoft, IBM
    "command": 4_096,
    "command-a": 256_000,
    "command-a-plus": 128_000,
    "command-latest": 128_000,
    "command-plus": 128_000,
    "command-r": 128_000,
    "granite": 131_072,
    "jamba": 256_000,
    "nova": 300_000,
    "nova-2": 1_000_000,
    "nova-micro": 128_000,
    "phi": 16_384,
    "phi-3-5": 131_072,
    "phi-3-medium-128k": 131_072,
    "phi-3-mini-128k": 131_072,
    "phi-3-small-128k": 131_072,
    "phi-4-mini": 131_072,
    "phi-4-multimodal": 131_072,
}
_LONG = re.compile(r"\[1m\]$")
"""The suffix with which Claude Code requests a window of a million tokens, as in `sonnet[1m]`."""
_VENDOR = re.compile(
    r"^(?:(?:us|eu|apac|au|jp|global)\.)?"
    r"(?:ai21|amazon|anthropic|cohere|deepseek|google|meta|minimax|mistral|moonshot|moonshotai"
    r"|openai|qwen|zai)\."
)
"""The region and provider before a model's name on Amazon Bedrock: `us.anthropic.claude-…`."""
_POINT = re.compile(r"[._]|(?<=\d)p(?=\d)")
"""The separator in a version: `3.1`, `3_1`, `3p1`."""
_SHORT = {"sonnet": "claude-sonnet-5", "opus": "claude-opus-5", "haiku": "claude-haiku-4-5"}
"""The short names of models in Claude Code's settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """The `agent.*` settings, which describe the agent that uses the gateway.

    `context_window`: in tokens. `model`: used to look up the window and the price. `input_price`:
    US dollars per million input tokens; if it is 0, the price is looked up in a table.
    """

    context_window: int | None = None
    model: str = ""
    input_price: Annotated[float, Meta(ge=0)] = 0.0


def window_in(options: AgentOptions) -> int | None:
    """Return the configured window, or else the window of the configured model, if known."""
    return options.context_window or window_of(options.model)


class ResultTokens(Struct, frozen=True):
    """The budgets in tokens of a result for which no limit is configured: `usual`, and that of a
    `file` which the agent reads."""

    usual: int = RESULT_TOKENS["default"]
    file: int = READ_TOKENS


def result_tokens_in(window: int | None) -> ResultTokens:
    """Return the budgets for a window in tokens."""
    file = READ_TOKENS if window is None else min(READ_TOKENS, int(window * READ_SHARE))
    return ResultTokens(RESULT_TOKENS[size_of(window)], file)


def unknown_model(options: AgentOptions) -> str:
    """Return a warning if the window of the configured model is unknown, else ""."""
    if not options.model or window_in(options) is not None:
        return ""
    return (
        f"agent.model: no window is known for {options.model!r}, so the default budgets apply; "
        "set agent.context_window"
    )


def size_of(window: int | None) -> str:
    """Return `small`, `default` or `large` for a window in tokens."""
    if window is None:
        return "default"
    return "small" if window <= SMALL_WINDOW else "large" if window > LARGE_WINDOW else "default"


def window_of(model: str) -> int | None:
    """Return the window for the longest known prefix of a model's name, or None. If the name ends
    with `[1m]`, the window is a million tokens.

    The name may begin with a provider (`anthropic/…`, `us.anthropic.…`). The version in it may be
    written with dots or dashes.
    """
    name = model.strip().lower().rpartition("/")[2]
    if _LONG.search(name):
        return 1_000_000
    name = _VENDOR.sub("", _SHORT.get(name, name))
    name = _POINT.sub("-", name).replace("qwen-3", "qwen3", 1)
    fitting = [prefix for prefix in WINDOWS if name.startswith(prefix)]
    return WINDOWS[max(fitting, key=len)] if fitting else None
