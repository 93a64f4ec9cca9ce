"""Known formats are masked whatever is beside them, however long they are, and even if they are
cut.
"""

import json
import random
import re
import string
import time

import pytest
from tests.unit.ground.secrets.formats import SURROUNDINGS, encoded, part_of, secrets

from upwell.ground.secrets import redact as module
from upwell.ground.secrets.redact import FAILED, has_secret, redact, redacted_start

SECRETS = secrets()
WORDS = "lantern ferry harbour pier gauge tide anchor buoy".split()


def test_there_are_as_many_formats_as_promised() -> None:
    assert len(SECRETS) >= 96
    assert len(SURROUNDINGS) >= 12


@pytest.mark.parametrize("name", sorted(SURROUNDINGS))
def test_a_secret_is_masked_in(name: str) -> None:
    around = SURROUNDINGS[name]
    left = [
        format_name
        for format_name, secret in SECRETS.items()
        if part_of(secret) in redact(around(secret))[0]
    ]
    assert left == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_no_value_of_a_secret_makes_it_pass(seed: int) -> None:
    """A random value may contain a word, lack a digit, or look like a name."""
    left = [
        (format_name, name)
        for format_name, secret in secrets(seed + 1_000).items()
        for name, around in SURROUNDINGS.items()
        if part_of(secret) in redact(around(secret))[0]
    ]
    assert left == []


AWS_PAIRS = (
    *("{id},{key}", "{id} {key}", "{id}:{key}", "{id}\n{key}\n", "| {id} | {key} |", "{key},{id}"),
    *("the key is {id} and the secret is {key}.", 'client("s3", "{id}", "{key}")'),
    *('{{"AccessKeyId": "{id}", "SecretAccessKey": "{key}"}}', "s3://{id}:{key}@bucket"),
    *("Secret access key: {key}", "AWS secret: {key}", "<SecretAccessKey>{key}</SecretAccessKey>"),
)


@pytest.mark.parametrize("pair", AWS_PAIRS)
def test_a_secret_key_of_aws_is_masked_beside_its_id_or_its_name(pair: str) -> None:
    left = []
    for seed in range(40):
        rng = random.Random(seed)
        key = "".join(rng.choices(string.ascii_letters + string.digits + "/+", k=40))
        name = "AKIA" + "".join(rng.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", k=16))
        masked, _ = redact(pair.format(id=name, key=key))
        left += [key] if key[-12:] in masked or key[:12] in masked else []
    assert left == []


def test_a_hash_beside_a_key_id_stays() -> None:
    commit = "3f2a1c0d9e8b7a6f5e4d3c2b1a0f9e8d7c6b5a49"
    assert commit in redact(f"{SECRETS['aws']} in commit {commit}")[0]


def test_a_secret_in_base64_is_masked() -> None:
    left = [name for name, secret in SECRETS.items() if _left_encoded(secret)]
    assert left == []


def _left_encoded(secret: str) -> bool:
    text, part = encoded(secret)
    return part in redact(f"data: {text}")[0]


PARTS_OF_A_TOKEN = {("openai-project", "_"), ("url-safe", "_"), ("url-safe", "/")}
"""Formats that are recognised by their exact length, with an edge that may be the next character of
a longer token or of Base64."""


@pytest.mark.parametrize("edge", [*",)]}.&<|:#/\0_ ", "\u201d", "%22", '\\"', "\\t"])
def test_any_character_outside_a_token_ends_the_token(edge: str) -> None:
    behind = edge + " ok"
    tokens = {name: s for name, s in SECRETS.items() if " " not in s and "=" not in s}
    left = [
        name
        for name, secret in tokens.items()
        if part_of(secret) in redact(f"it is {secret}{behind}")[0]
        and (name, edge) not in PARTS_OF_A_TOKEN
    ]
    assert left == []


@pytest.mark.parametrize("width", [20, 40, 76, 80])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\\n"])
def test_a_secret_that_a_terminal_broke_is_masked(width: int, end: str) -> None:
    """A terminal breaks at its width, wherever that is in the name, the secret or the text around
    it, and a program that quotes the output escapes the line breaks.
    """
    left = []
    for name, secret in SECRETS.items():
        for before in ("", "the deploy needs "):
            text = before + secret + " and that is all\n"
            wrapped = end.join(
                line[at : at + width]
                for line in text.split("\n")
                for at in range(0, max(1, len(line)), width)
            )
            masked = re.sub(r"(\\n|\s)+", "", redact(wrapped)[0])
            if part_of(secret)[-12:] in masked:
                left.append((name, before))
    assert left == []


def test_lines_of_one_length_are_no_wrapped_secret() -> None:
    table = "\n".join(f"| {word:10} | {number:6} |" for number, word in enumerate(WORDS * 40))
    listing = "\n".join(f"password_{word:8}: reset in menu" for word in WORDS)
    assert redact(f"{table}\n{listing}") == (f"{table}\n{listing}", ())


def test_a_token_in_an_added_line_of_a_diff_is_masked() -> None:
    token = SECRETS["url-safe"]
    for text in (f"+{token}", f" a\n+{token}\n b"):
        assert token not in redact(text)[0]


def test_a_digest_is_no_token() -> None:
    digest = SECRETS["url-safe"]
    for text in (f'"payload_sha256": "{digest}"', f"etag: {digest}", f"id=observation:{digest}"):
        assert redact(text) == (text, ())


def test_two_secrets_with_one_character_between_them() -> None:
    first, second = SECRETS["stripe"], SECRETS["aws"]
    for between in (",", "\n", "|"):
        masked, _ = redact(f"{first}{between}{second}{between}{first}")
        assert part_of(first) not in masked
        assert part_of(second) not in masked


def test_the_rest_of_the_line_stays() -> None:
    text = json.dumps({"a": "b", "key": SECRETS["npm"], "c": "d\te"})
    masked, rules = redact(text)
    assert json.loads(masked) == {"a": "b", "key": f"[REDACTED:{rules[0]}]", "c": "d\te"}


def test_a_name_in_front_of_a_name_does_not_hide_the_value() -> None:
    assert part_of(SECRETS["aws-secret"]) not in redact("KEY:" + SECRETS["aws-secret"])[0]


@pytest.mark.parametrize("cut", [3, 6, 9])
def test_a_key_without_its_end_or_its_beginning_is_masked(cut: int) -> None:
    lines = SECRETS["rsa-key"].split("\n")
    for part in (lines[:cut], lines[-cut:]):
        for text in ("\n".join(part), "\\n".join(part), "\n".join("> " + line for line in part)):
            masked, rules = redact(f"here:\n{text}")
            assert rules == ("private-key",)
            assert not any(line[:16] in masked for line in part if "-----" not in line)


def test_text_about_keys_is_left_alone() -> None:
    text = "A file that begins with -----BEGIN RSA PRIVATE KEY----- holds a key, you know."
    assert redact(text) == (text, ())


def test_a_start_is_masked_before_it_is_cut() -> None:
    text = "x" * 90 + " " + SECRETS["github"]
    for limit in range(92, 125):
        assert "ghp_" not in redacted_start(text, limit)
        assert len(redacted_start(text, limit)) <= limit


ENDLESS = [
    "ops_eyJ",
    "fm2_",
    "xoxb-1234567890-1234567890",
    "Authorization: Bearer ",
    "ZXlKaGJHY2lPaU",
]


@pytest.mark.parametrize("start", ENDLESS)
def test_a_token_without_an_end_is_masked_to_its_end_in_linear_time(start: str) -> None:
    rng = random.Random(3)
    token = "".join(rng.choices(string.ascii_letters + string.digits, k=1_000_000))
    began = time.process_time()
    masked, rules = redact(f"a {start}{token} b")
    assert time.process_time() - began < 5
    assert rules
    assert len(masked) < 100
    assert masked.endswith(" b")


ESCAPES = (
    *("&", "amp;", "lt", "quot;", "nbsp;", ";", "#", "#x", "0", "9", "D800", "1234"),
    *("%", "25", "41", "1b", "ff", "\\", "u", "{", "}", "d800", "x", "e", "33", "[", "m", "1;3"),
    *("\x1b", "]", "\x07", "n", "r", '"', "'", "`", "\u200b", "\u202e", "\ufeff", "\xad", "\u034f"),
    *("\n", "\r\n", "> ", "A" * 16, "abcd1234" * 5, "==", "Zm9vYmFyYmF6", "\ud800", "\udfff", "\0"),
    *("-----BEGIN ", "PRIVATE KEY-----", "-----END ", "password=", "ghp_", "AKIA", " ", "é", "🌊"),
)


@pytest.mark.parametrize("seed", range(8))
def test_the_search_fails_on_no_text(seed: int) -> None:
    """A text on which it fails is masked as a whole."""
    rng = random.Random(seed)
    texts = ["".join(rng.choices(ESCAPES, k=rng.randint(1, 20))) for _ in range(1_000)]
    pairs = [first + second for first in ESCAPES for second in ESCAPES]
    assert [text for text in texts + pairs if "unreadable" in redact(text)[1]] == []


@pytest.mark.parametrize("text", ["a &amp; b", "?a=1&amp;b=2", "&amp;amp;", "&amp;lt;p&amp;gt;"])
def test_entities_alone_are_no_secret(text: str) -> None:
    assert redact(text) == (text, ())


def test_a_search_that_fails_means_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(data: bytes) -> list[object]:
        raise RecursionError

    monkeypatch.setattr(module, "_find", broken)
    assert redact("two\nlines") == (FAILED, ("unreadable",))
    assert redact("two\nlines", keep_lines=True) == (FAILED + "\n", ("unreadable",))
    assert has_secret("two\nlines")
