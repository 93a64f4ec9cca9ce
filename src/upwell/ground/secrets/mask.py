"""Mask secrets in addresses and commands before these are logged or shown to a model or user.

A server's address often contains a secret (`?key=…`, `user:password@`, a long random part of the
path), as do the arguments of its command (`--token …`). `ground/secrets/redact.py` finds
secrets by their format.
"""

import re
from collections.abc import Sequence
from urllib.parse import urlsplit, urlunsplit

MASK = "***"
SECRET_WORDS = frozenset(
    """
    token secret password passwd passphrase key apikey authorization auth bearer credential
    credentials pat cookie
    """.split()
)
SECRET_ENDS = ("password", "passwd", "passphrase", "secret", "token", "apikey", "sshpass")
"""Endings of names that denote a secret, even without a word boundary, as in `PGPASSWORD`."""
SHORT_NAMES = frozenset({"pass", "pwd", "pw"})
"""Last words of names that denote a secret: `--pass`, `DB_PASS`, `MYSQL_PWD`."""
FOLDERS = frozenset({"PWD", "OLDPWD", "INIT_CWD"})
SHORT_FLAG = "-p"
"""A flag before a password, a port or a path. After one of `RUNNERS`, it precedes a package."""
RANDOM_CHARS = 20
"""A part of a path counts as a secret if it contains letters and digits and is at least this
long."""
RUNNERS = frozenset({"npx", "npm", "pnpm", "bunx", "uvx", "-y", "--yes"})
"""Words after which `-p` names a package."""
_PASSWORD = re.compile(r"(?!\d+$)[^\s/.:@-][^\s/:]*")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def names_secret(name: str) -> bool:
    """Return whether a name denotes a secret, as `apiKey`, `API_KEY` and `PGPASSWORD` do."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or name in FOLDERS:
        return False
    return (
        not SECRET_WORDS.isdisjoint(words)
        or words[-1] in SHORT_NAMES
        or words[-1].endswith(SECRET_ENDS)
    )


def masked_address(url: str) -> str:
    """Mask the user and password, the query's values, the fragment, and random-looking parts of the
    path in `url`.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    user, separator, host = parts.netloc.rpartition("@")
    return urlunsplit(
        (
            parts.scheme,
            f"{MASK}@{host}" if separator and user else host,
            "/".join(MASK if _looks_random(part) else part for part in parts.path.split("/")),
            "&".join(map(_without_value, parts.query.split("&"))) if parts.query else "",
            MASK if parts.fragment else "",
        )
    )


def masked_words(words: Sequence[str]) -> list[str]:
    """Mask secrets in the words of a command, such as the value after `--token`."""
    from upwell.ground.secrets.redact import redact

    masked: list[str] = []
    previous, runs_package = "", False
    for word in words:
        flag, sign, value = _split_flag(word)
        runs_package = runs_package or word in RUNNERS
        follows_secret_flag = (
            previous.startswith("-") and names_secret(previous) and not word.startswith("--")
        )
        is_password = previous == SHORT_FLAG and not runs_package and _PASSWORD.fullmatch(word)
        if follows_secret_flag or is_password:
            masked.append(MASK)
        elif value and names_secret(flag):
            masked.append(f"{flag}{sign}{MASK}")
        elif "://" in value:
            masked.append(f"{flag}{sign}{masked_address(value)}")
        elif "://" in word:
            masked.append(masked_address(word))
        else:
            masked.append(redact(word)[0])
        previous = "" if sign else word
    return masked


def _split_flag(word: str) -> tuple[str, str, str]:
    """Split `--token=x` or `Authorization: Bearer x` into name, separator and value."""
    for sign in ("=", ": "):
        name, present, value = word.partition(sign)
        if present and "://" not in name and " " not in name:
            return name, sign, value
    return word, "", ""


def _without_value(pair: str) -> str:
    name, sign, value = pair.partition("=")
    return f"{name}={MASK}" if sign and value else name if sign else MASK


def _looks_random(part: str) -> bool:
    return len(part) >= RANDOM_CHARS and any(map(str.isdigit, part)) and any(map(str.isalpha, part))
