"""Secrets are masked, other text is unchanged, and the cost is bounded.

Samples are put together from halves, so that scanners of this repository stay quiet.
"""

import base64
import random
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest
import re2

from upwell.ground.secrets.redact import all_rules, compiled, has_secret, redact

SECRETS = {
    "aws-access-token": "AKIA" + "IOSFODNN7EXAMPLF",
    "github-pat": "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "github-fine-grained-pat": "github_pat_" + "11ABCDE7Y0" + "aZ9_" * 18,
    "gitlab-pat": "glpat-" + "x9Y8z7W6v5U4t3S2r1Q0",
    "slack-bot-token": "xoxb-" + "123456789012-1234567890123-abcdefghijklmnopqrstuvwx",
    "jwt": "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."
    + "eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIn0."
    + "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c",
    "npm-access-token": "npm_" + "a8b7c6d5e4f3g2h1i0j9k8l7m6n5o4p3q2r1",
    "stripe-access-token": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
}


@pytest.mark.parametrize("rule", sorted(SECRETS))
def test_known_formats_are_masked_anywhere(rule: str) -> None:
    secret = SECRETS[rule]
    for before, after in (("", ""), ("see ", " there"), ("é 😀 ", "\n"), ('key="', '"')):
        masked, rules = redact(f"{before}{secret}{after}")
        assert secret not in masked
        assert masked.startswith(before)
        assert masked.endswith(after)
        assert rules
        assert has_secret(f"{before}{secret}{after}")


def test_a_private_key_of_many_lines_is_masked_whole() -> None:
    body = "MIIEowIBAAKCAQEA\n" * 900
    text = f"a\n-----BEGIN RSA {'PRIVATE'} KEY-----\n{body}-----END RSA {'PRIVATE'} KEY-----\nb"
    masked, rules = redact(text)
    assert masked == "a\n[REDACTED:private-key]\nb"
    assert rules == ("private-key",)


def test_a_very_long_token_is_masked_to_its_end() -> None:
    claims = base64.urlsafe_b64encode(random.Random(2).randbytes(9_000)).decode()
    token = f"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJ{claims}.{claims[:60]}"
    masked, _ = redact(f"token {token} end")
    assert masked == "token [REDACTED:jwt] end"


def test_only_the_secret_part_of_a_url_or_a_header_is_masked() -> None:
    masked, rules = redact("postgres://app:" + "s3cretpw@db:5432/x")
    assert masked == "postgres://app:[REDACTED:url-password]@db:5432/x"
    assert rules == ("url-password",)
    masked, _ = redact("Authorization: Bearer " + "abcDEF123456ghiJKL")
    assert masked == "Authorization: Bearer [REDACTED:authorization-header]"


def test_several_secrets_in_one_text() -> None:
    text = f"{SECRETS['github-pat']} and {SECRETS['aws-access-token']}"
    masked, rules = redact(text)
    assert masked == "[REDACTED:github-pat] and [REDACTED:aws-access-token]"
    assert rules == ("aws-access-token", "github-pat")


def test_masking_twice_changes_nothing_more() -> None:
    for secret in SECRETS.values():
        masked, _ = redact(f"password = {secret}")
        assert redact(masked) == (masked, ())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "the password is kept in the vault, ask Ana",
        "access_token = get_token_from_environment()",
        "commit 3f2a1c0d9e8b7a6f5e4d3c2b1a0f9e8d7c6b5a49",
        "https://example.com:8080/path@2x.png and user@example.com",
        "postgres://app:${PASSWORD}@db/x",
        "postgres://user:pass@host:5432/db",
        "redis://:your-password@cache",
        "url https://me:***@host",
        'apiKey: "test-key", providers: { apiKey: "some-other-key" }',
        "key = value",
        "\ud800 lone",
    ],
)
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert redact(text) == (text, ())
    assert not has_secret(text)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("postgres://user:pass1@host:5432/db", "pass1"),
        ("postgres://pass:password-of-ana@host", "password-of-ana"),
        ("postgres://app:hunting@localhost/db", "hunting"),
        ('apiKey: "kelp-harbor"', "kelp-harbor"),
        ('apiKey: "kelp2-key"', "kelp2-key"),
        ('apiKey: "Keyharborkelp"', "Keyharborkelp"),
    ],
)
def test_only_words_that_name_a_password_are_no_password(text: str, secret: str) -> None:
    assert secret not in redact(text)[0]


def test_every_rule_compiles() -> None:
    rules = all_rules()
    assert len(rules.raw) > 220
    for rule_id in rules.raw:
        assert compiled(rule_id).id == rule_id
    assert re2.compile("x")


def test_one_pass_finds_every_keyword() -> None:
    rules, rng = all_rules(), random.Random(7)
    keywords = [keyword for keyword, _ in rules.triggered]
    fillers = [b" ", b"", b"x", b"\xff\x00", b"=", b"\n", b"token_of the server"]
    for length in (1, 2, 3, 10, 100, 3_000):
        for _ in range(40 if length < 1_000 else 3):
            text = b"".join(rng.choice(keywords) + rng.choice(fillers) for _ in range(length))
            text = text[rng.randrange(3) : len(text) - rng.randrange(3)]
            matched = rules.keywords.Match(text) or ()
            assert {keywords[n] for n in matched} == {word for word in keywords if word in text}
    assert not rules.keywords.Match(b"")


def test_the_cost_is_bounded_on_base64_one_line_and_code() -> None:
    rng = random.Random(1)
    blob = base64.b64encode(rng.randbytes(750_000)).decode()
    code = "".join(
        f"def access_{i}(api_key, token):\n    return auth.get(key=token, secret={i})\n"
        for i in range(14_000)
    )
    redact("warm")
    for text in (blob, code, code.replace("\n", " ")):
        began = time.process_time()
        redact(text)
        assert (time.process_time() - began) / (len(text) / 1e6) < 1.0


def test_importing_it_compiles_nothing() -> None:
    check = "import sys, upwell.ground.secrets.redact; sys.exit('re2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


WORD = "hunter2" + "hunter"


@pytest.mark.parametrize(
    "text",
    [
        f"password={WORD}",
        f"the staging DB_PASSWORD: {WORD} since May",
        f"export API_KEY='{WORD}'",
        f'{{"secret": "{WORD}", "n": 1}}',
        f"token := {WORD};",
        'passwd = "correct' + 'horsebattery"',
    ],
)
def test_a_literal_assigned_to_a_password_is_masked(text: str) -> None:
    masked, rules = redact(text)
    assert WORD not in masked
    assert "horsebattery" not in masked
    assert set(rules) & {"assigned-secret", "quoted-password"}
    assert redact(masked) == (masked, ())


@pytest.mark.parametrize(
    "text",
    [
        "password=${DB_PASSWORD1}",
        "password=<your-password1>",
        "token = getenv('TOKEN12345')",
        "secret: changeme123",
        'the_secret="changeme"',
        "api_key=your-key-12345",
        "token=self.token2",
        "password=user2_password",
        "password=xxxxxxxx1",
        "max_tokens: 4000000",
        "password: at least 8 characters",
        '{"password": "Passwort vergessen1"}',
        "secret=/run/secrets/db1",
        "password=short1",
    ],
)
def test_a_placeholder_for_a_password_stays(text: str) -> None:
    assert redact(text) == (text, ())


def test_the_standard_library_has_almost_no_passwords() -> None:
    """At most one false alarm per megabyte, because each one keeps its text off the disk."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    collected = [rule for text in texts for rule in redact(text)[1]]
    ours = [rule for rule in collected if rule in ("assigned-secret", "quoted-password")]
    assert len(texts) > 100
    assert len(ours) <= sum(map(len, texts)) / 1e6


@pytest.mark.parametrize(
    "text",
    [
        "tool --password hunting",
        "psql --pass hunting --host h",
        "tool --password=hunting x",
        "run `db -u root --pass 'hunting'`",
        "PGPASSWORD=hunting psql -h x",
        "export DB_PASSWORD='hunting'",
        "MYSQL_PWD=hunting mysqldump shop",
        "mysql -u root -phunting shop",
        "sshpass -p hunting ssh h",
        "docker login -u me -p hunting registry",
        "redis-cli -h x -a hunting ping",
        "mysql://u:hunting@h/db",
    ],
)
def test_a_plain_word_is_a_password_where_only_a_password_is_possible(text: str) -> None:
    masked, rules = redact(text)
    assert "hunting" not in masked
    assert len(rules) == 1


@pytest.mark.parametrize(
    "text",
    [
        "the --password flag is needed",
        "use --pass to go on",
        "--password PASSWORD  the password of the user",
        "--password-file ./secret",
        "`--password` or `--pass`",
        "PGPASSWORD=$PASSWORD psql",
        "PGPASSWORD=*** psql",
        "OLDPWD=/home/me PWD=/home/me",
        "mkdir -p sources; docker run -p 8080:80 mongo",
        "mysql -p shop; python -p thing",
        "MAX_PASS_COUNT=3 and a first-pass second",
    ],
)
def test_other_words_of_a_command_line_stay(text: str) -> None:
    assert redact(text) == (text, ())


def test_the_pages_of_this_repository_have_none() -> None:
    root = Path(__file__).parents[4]
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md")]
    ours = {"password-option", "password-variable", "client-password"}
    assert len(pages) > 8
    collected = {page.name: ours & {*redact(page.read_text("utf-8"))[1]} for page in pages}
    assert {page: rules for page, rules in collected.items() if rules} == {}
