import pytest

from upwell.config import load
from upwell.ground.context_windows import AgentOptions, size_of, window_in, window_of


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("claude-opus-4-1", 200_000),
        ("anthropic/claude-sonnet-5-20260901", 1_000_000),
        ("GPT-4.1-mini", 1_047_576),
        ("llama3.1:8b", 131_072),
        ("llama-3.3-70b-versatile", 131_072),
        ("llama3:8b", 8_192),
        ("gpt-4-0613", 8_192),
        ("gpt-4-1106-preview", 128_000),
        ("gpt-6.1-sol", 1_050_000),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", 200_000),
        ("claude-opus-4.8", 1_000_000),
        ("claude-opus-4-8", 1_000_000),
        ("sonnet[1m]", 1_000_000),
        ("opus", 1_000_000),
        ("accounts/fireworks/models/glm-5p3", 1_048_576),
        ("mistral/mixtral-8x22b-instruct", 65_536),
        ("qwen-3-coder-480b", 262_144),
        ("nobody-knows", None),
        ("", None),
    ],
)
def test_context_windows_by_model_name(model, window):
    assert window_of(model) == window


@pytest.mark.parametrize(
    ("options", "size"),
    [
        (AgentOptions(), "default"),
        (AgentOptions(context_window=32_768), "small"),
        (AgentOptions(context_window=32_769), "default"),
        (AgentOptions(model="mixtral-8x7b-instruct"), "small"),
        (AgentOptions(context_window=200_000), "default"),
        (AgentOptions(context_window=200_001), "large"),
        (AgentOptions(context_window=8_000, model="claude-sonnet-5"), "small"),
        (AgentOptions(model="nobody-knows"), "default"),
    ],
)
def test_the_size_follows_from_the_window(options, size):
    assert size_of(window_in(options)) == size


def test_the_window_scales_settings_that_the_user_did_not_set(tmp_path):
    small = load(tmp_path, {"agent.context_window": 16_000}, {})
    assert small.result_tokens().usual == 1500
    assert small.surfacing().surface.max_injection_chars == 1500
    set_by_hand = {"agent.context_window": 16_000, "surface.max_injection_chars": 2500}
    assert load(tmp_path, set_by_hand, {}).surfacing().surface.max_injection_chars == 2500
    assert load(tmp_path, {"agent.model": "gpt-5"}, {}).result_tokens().usual == 8000
