"""Addresses and commands as they may be shown: to a model, in a log, on a screen.

A key often stands in a server's address (`?key=…`, `user:password@`, a long random part of the
path) or in its arguments (`--token …`). What is known by its form alone is in `ground/redact.py`.
"""

import re
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit, urlunsplit

VEIL = "***"
SECRET_WORDS = frozenset(
    """
    token secret password passwd passphrase key apikey authorization auth bearer credential
    credentials pat cookie
    """.split()
)
SECRET_ENDS = ("password", "passwd", "passphrase", "secret", "token", "apikey", "sshpass")
"""Of names whose words are not told apart, like `PGPASSWORD`."""
SHORT_NAMES = frozenset({"pass", "pwd", "pw"})
"""The last word of `--pass`, `DB_PASS` and `MYSQL_PWD`."""
FOLDERS = frozenset({"PWD", "OLDPWD", "INIT_CWD"})
SHORT_FLAG = "-p"
"""A password, a port, a path or, where `-y` stands before it, a package."""
RANDOM_CHARS = 20
"""A part of a path that is so long, with letters and digits, is taken for a key."""
RUNNERS = frozenset({"npx", "npm", "pnpm", "bunx", "uvx", "-y", "--yes"})
"""What tells that `-p` names a package."""
_PASSWORD = re.compile(r"(?!\d+$)[^\s/.:@-][^\s/:]*")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def names_secret(name: str) -> bool:
    """Is what goes by this name secret? `api-key`, `apiKey`, `API_KEY` and `PGPASSWORD` are."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or name in FOLDERS:
        return False
    return (
        not SECRET_WORDS.isdisjoint(words)
        or words[-1] in SHORT_NAMES
        or words[-1].endswith(SECRET_ENDS)
    )


def veiled_address(url: str) -> str:
    """`url` without what lets somebody in: user and password, values of the query, the fragment,
    and parts of the path that look random."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return VEIL
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(
        (
            parts.scheme,
            f"{VEIL}@{host}" if at and user else host,
            "/".join(VEIL if _looks_random(part) else part for part in parts.path.split("/")),
            "&".join(map(_without_value, parts.query.split("&"))) if parts.query else "",
            VEIL if parts.fragment else "",
        )
    )


def veiled_words(words: Sequence[str]) -> list[str]:
    """The words of a command, without values of what is named like a secret, or looks like one."""
    return list(_veiled(words))


def _veiled(words: Sequence[str]) -> Iterator[str]:
    from upwell.ground.redact import redact

    before, runs_package = "", False
    for word in words:
        flag, sign, value = _parted(word)
        runs_package = runs_package or word in RUNNERS
        named = before.startswith("-") and names_secret(before) and not word.startswith("--")
        short = before == SHORT_FLAG and not runs_package and _PASSWORD.fullmatch(word)
        if named or short:
            yield VEIL
        elif value and names_secret(flag):
            yield f"{flag}{sign}{VEIL}"
        elif "://" in value:
            yield f"{flag}{sign}{veiled_address(value)}"
        elif "://" in word:
            yield veiled_address(word)
        else:
            yield redact(word)[0]
        before = "" if sign else word


def _parted(word: str) -> tuple[str, str, str]:
    """`--token=x` and `Authorization: Bearer x` as name, sign and value."""
    for sign in ("=", ": "):
        name, found, value = word.partition(sign)
        if found and "://" not in name and " " not in name:
            return name, sign, value
    return word, "", ""


def _without_value(pair: str) -> str:
    name, sign, value = pair.partition("=")
    return f"{name}={VEIL}" if sign and value else name if sign else VEIL


def _looks_random(part: str) -> bool:
    return len(part) >= RANDOM_CHARS and any(map(str.isdigit, part)) and any(map(str.isalpha, part))
