"""The context windows of models, and the size of responses for each window.

`WINDOWS`, read from `_PREFIXES`, is the only table of windows. It maps prefixes of model names
(with dashes in place of dots) to window sizes in tokens, as the providers published them up to
November 2026. The longest matching prefix applies. Unknown models get the default size.
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

_PREFIXES = {
    4_096: "command llama-2 llama2",
    8_192: "gemma gpt-4 llama-3 llama3",
    16_384: "codellama deepseek-coder phi",
    16_385: "gpt-3-5",
    32_760: "gemini-1-0",
    32_768: """
        codestral-22b codestral-2405 gpt-4-32k mistral mistral-large-2402 mistral-small-2402
        mistral-small-24b mixtral qwen
        """,
    40_960: "qwen3 qwen3-8b",
    65_536: "mixtral-8x22b",
    100_000: "claude-instant claude-v",
    128_000: """
        chatgpt-4o codestral-2 command-a-plus command-latest command-plus command-r
        gemini-2-5-computer-use glm gpt-4-0125 gpt-4-1106 gpt-4-5 gpt-4-turbo gpt-4-vision
        gpt-4o gpt-5-1-chat gpt-5-2-chat gpt-5-3-chat gpt-5-3-codex-spark gpt-5-chat gpt-audio
        nova-micro o1-mini o1-preview
        """,
    131_072: """
        deepseek devstral-small-2505 gemini-robotics gemma-3 gemma-4-e gemma3 gpt-oss granite
        grok kimi llama-3-1 llama-3-2 llama-3-3 llama3-1 llama3-2 llama3-3 magistral ministral
        ministral-3b mistral-large mistral-medium mistral-nemo mistral-small phi-3-5
        phi-3-medium-128k phi-3-mini-128k phi-3-small-128k phi-4-mini phi-4-multimodal pixtral
        qwen-plus qwen-turbo qwen3-30b-a3b qwen3-vl-32b qwq
        """,
    163_840: "deepseek-coder-v2",
    196_608: "minimax",
    200_000: "claude codex-mini glm-4-6 glm-4-7 glm-5 o1 o3 o4",
    256_000: "codestral codestral-25 command-a grok-4 grok-build grok-code jamba mistral-code",
    262_144: """
        devstral gemma-4 gemma4 kimi-k2-0905 kimi-k2-5 kimi-k2-6 kimi-k2-7 kimi-k2-instruct-0905
        kimi-k2-thinking ministral-3 mistral-large-2512 mistral-large-3 mistral-medium-2604
        mistral-medium-3-5 mistral-medium-latest mistral-small-2603 mistral-small-latest
        mistral-vibe qwen3-235b-a22b qwen3-30b-a3b-instruct-2507 qwen3-5 qwen3-6 qwen3-8-27b
        qwen3-coder qwen3-max qwen3-next qwen3-vl
        """,
    300_000: "nova",
    400_000: "gpt-5 gpt-5-4-mini gpt-5-4-nano",
    500_000: "grok-4-5 grok-4-6 grok-4-7",
    1_000_000: """
        claude-fable-5 claude-haiku-5 claude-mythos claude-opus-4-6 claude-opus-4-7
        claude-opus-4-8 claude-opus-5 claude-sonnet-4-6 claude-sonnet-5 deepseek-flash
        deepseek-v4 grok-4-20 grok-4-3 kimi-k2-8 minimax-m1 minimax-m3 nova-2 qwen-coder
        qwen-flash qwen-plus-2025-07 qwen-plus-2025-09 qwen-plus-latest qwen-turbo-2024-11
        qwen-turbo-2025 qwen-turbo-latest qwen3-7 qwen3-8 qwen3-coder-flash qwen3-coder-plus
        """,
    1_047_576: "gpt-4-1",
    1_048_576: "gemini glm-5-2 glm-5-3 kimi-k3 llama-4 llama4 mistral-large-4",
    1_050_000: "gpt-5-4 gpt-5-5 gpt-5-6 gpt-6",
    2_000_000: "grok-4-1 grok-4-fast",
}
WINDOWS: Mapping[str, int] = {
    prefix: window for window, prefixes in _PREFIXES.items() for prefix in prefixes.split()
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
