"""Whether a Markdown text gives an instruction, or only contains its words."""

import time

import pytest

from upwell.surface.loaded import Instructions

RULE = "Use pnpm"


@pytest.mark.parametrize(
    "text",
    [
        "Use pnpm",
        "# Tools\n\n- Use pnpm.\n- Never commit secrets.",
        "Run the tests first. Use pnpm. Be brief.",
        "1. **Use  pnpm**\n2. Be brief",
        "Rules:\n* use PNPM!",
        "- Tools\n    - Use pnpm",
        "---\ntitle: never mind\n---\nUse\npnpm.",
        "```\nnot this\n```\nUse pnpm",
        "# Not this\n\n# But this one\n\n## Tools\n\nUse pnpm".replace("But", "And"),
    ],
)
def test_an_affirmed_instruction_is_found(text: str) -> None:
    assert RULE in Instructions(text)


@pytest.mark.parametrize(
    "text",
    [
        "Do **not** use pnpm, ever",
        "Do not\nuse pnpm\never",
        "Use pnpm, or not",
        "Use pnpm only for the web",
        "The rule “Use pnpm” is obsolete here.",
        "Use pnpm. That is no longer so.",
        "Use pnpm? No.",
        "~~Use pnpm~~",
        "> Use pnpm",
        "`Use pnpm`",
        "<!-- Use pnpm -->",
        "<!--\n\n- Use pnpm\n\n-->",
        "<!-- \n- Use pnpm",
        "<del>\n\nUse pnpm\n\n</del>",
        "```\nUse pnpm\n```",
        "    Use pnpm",
        "Don't:\n- Use pnpm",
        "These are outdated:\n\nUse pnpm",
        "## Obsolete rules\n\n### Tools\n\n- Use pnpm",
        "- Never do this:\n  - Use pnpm",
        "- Never do this:\n\n  Use pnpm",
        "Verwende nicht mehr:\n- Use pnpm",
        "- [x] Use pnpm",
        "",
    ],
)
def test_a_text_that_only_contains_the_words_is_not_enough(text: str) -> None:
    assert RULE not in Instructions(text)


def test_a_rule_of_several_sentences_is_found_in_order() -> None:
    rule = "# Style\n\n- Never use var. Use const.\n- Use tabs."
    assert rule in Instructions(f"Be brief.\n\n{rule}\n- And more.")
    assert rule not in Instructions("# Style\n\n- Use tabs.\n- Never use var. Use const.")
    assert rule not in Instructions("# Style\n\n- Never use var. Use const.")


@pytest.mark.parametrize("rule", ["", " .", "<!-- Use pnpm -->"])
def test_a_rule_without_words_is_in_no_text(rule: str) -> None:
    assert rule not in Instructions("Use pnpm.")


@pytest.mark.parametrize(
    "text",
    [
        "<!-- " * 40_000,
        "<del>" * 40_000,
        "@" * 200_000,
        "@a " * 66_000 + "x",
        "never " * 20_000 + ":\n" + "- use pnpm\n" * 10_000,
        "use pnpm. " * 20_000 + "not",
        "".join(" " * depth + "- use pnpm\n" for depth in range(600)),
        "# never\n" * 25_000,
        "```\n~~~\n" * 20_000,
    ],
)
def test_any_text_is_read_in_linear_time(text: str) -> None:
    began = time.process_time()
    Instructions(text).__contains__(RULE)
    assert time.process_time() - began < 2
