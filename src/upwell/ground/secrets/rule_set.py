"""The rules for finding secrets: the files in `rules/`, compiled when first needed.

The gitleaks rules expect certain characters after a secret (a quote, a space, `;`). Real text also
has others: a comma, a bracket, a tag, a colour code. Here, a secret ends at almost any character
that cannot be part of the secret.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

BEFORE_BYTES = 400
AFTER_BYTES = 700
LONG_AFTER_BYTES = 16_384
LONG_RULES = frozenset({"jwt", "jwt-base64", "curl-auth-header", "curl-auth-user"})
"""Rules whose matches may extend far beyond the keyword, such as tokens of any length and
multi-line commands."""
GENERIC = "generic-api-key"
REPLACED = frozenset({"private-key"})
"""Rules that are not used. Code in `redact.py` finds these keys instead, even truncated ones."""
MAX_STOPWORD_RATIO = 6
"""A value with a stopword is not a secret if the value is at most this many times as long as the
stopword. Longer random values often contain one of the 600 four-letter stopwords by chance."""
_FOLDER = Path(__file__).with_name("rules")
_NARROW_END = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
_WIDE_END = r"(?:[^0-9A-Za-z]|$)"
_VALUE_END = r"""(?:[\x60'"\s;,)\]}<>&|*\\\x1b\x00]|[.:#/!?](?:\s|$)|[^\x00-\x7f]|$)"""
"""What may follow a secret of the generic rule, which recognises a secret by the name before it.
Characters that continue an expression are not included.
"""
_NOT_BASE64 = r"(?:[^a-zA-Z0-9+/]|\z)"
_WIDE_START = r"(?:^|[^A-Za-z])"
"""A digit may precede a secret, because wrapped lines are joined and a line often ends with a
digit."""


class Allowlist(Struct, frozen=True):
    """Exceptions to a rule. A finding is an exception if one of the `regexes` matches the `target`
    (the secret, the match or the line), or if the secret contains one of the `stopwords` and is not
    much longer than that (`MAX_STOPWORD_RATIO`).
    """

    target: str
    regexes: tuple[Any, ...]
    stopwords: tuple[bytes, ...]

    def passes(self, secret: bytes, match: bytes, line: bytes) -> bool:
        """Return whether a finding is an exception."""
        subject = {"match": match, "line": line}.get(self.target, secret)
        if any(regex.search(subject) for regex in self.regexes):
            return True
        lowered = secret.lower()
        least_chars = len(secret) // MAX_STOPWORD_RATIO
        return any(len(word) >= least_chars and word in lowered for word in self.stopwords)


class Rule(Struct, frozen=True):
    """One kind of secret.

    `entropy`: a secret must exceed this Shannon entropy, in bits per byte; 0 for any. `group`:
    the group that contains the secret; 0 means the first group that matched, or else the whole
    match. `allow`: exceptions. `after`: how many bytes to search after a keyword.
    """

    id: str
    regex: Any
    entropy: float
    group: int
    allow: tuple[Allowlist, ...]
    after: int


class SecretRules(Struct, frozen=True):
    """All rules.

    `triggered`: keywords, each with the ids of the rules to run. `everywhere`: maps each rule
    without keywords to the length of its shortest match in bytes. Such rules must be fast.
    `keywords`: an RE2 set that finds all keywords in one pass, and returns their positions in
    `triggered`. `raw`: the rules as written in the files. `allow`: exceptions that apply to all
    rules.
    """

    triggered: Sequence[tuple[bytes, tuple[str, ...]]]
    everywhere: Mapping[str, int]
    keywords: Any
    raw: Mapping[str, Mapping[str, Any]]
    allow: Allowlist


@lru_cache(maxsize=1)
def all_rules() -> SecretRules:
    raw: dict[str, Mapping[str, Any]] = {}
    everywhere: Mapping[str, Any] = {}
    # JSON is read ten times as fast as TOML, and each command that stores a memory waits for it.
    for document in (
        msgspec.json.decode((_FOLDER / "gitleaks.json").read_bytes()),
        tomllib.loads((_FOLDER / "upwell.toml").read_text("utf-8")),
    ):
        everywhere = document.get("allowlist", everywhere)
        raw |= {rule["id"]: rule for rule in document["rules"] if "regex" in rule}
    by_keyword: dict[bytes, list[str]] = {}
    for rule_id in raw.keys() - REPLACED:
        for keyword in raw[rule_id]["keywords"]:
            by_keyword.setdefault(keyword.lower().encode(), []).append(rule_id)
    return SecretRules(
        triggered=[(keyword, tuple(sorted(rule_ids))) for keyword, rule_ids in by_keyword.items()],
        everywhere={
            rule_id: rule["least_bytes"] for rule_id, rule in raw.items() if not rule["keywords"]
        },
        keywords=_set_of(by_keyword),
        raw=raw,
        allow=_allowlist(everywhere),
    )


@lru_cache(maxsize=512)
def compiled(rule_id: str) -> Rule:
    raw = all_rules().raw[rule_id]
    return Rule(
        id=rule_id,
        regex=regex(with_any_edge(rule_id, raw["regex"])),
        entropy=float(raw.get("entropy", 0.0)),
        group=int(raw.get("secretGroup", 0)),
        allow=tuple(
            _allowlist(allow) for allow in raw.get("allowlists", ()) if _applies_to_text(allow)
        ),
        after=LONG_AFTER_BYTES if rule_id in LONG_RULES else AFTER_BYTES,
    )


def with_any_edge(rule_id: str, pattern: str) -> str:
    """Return `pattern` with wider edges, so that almost any character that cannot be part of the
    secret may precede or follow it. Edges in an unknown form are not changed."""
    if pattern.endswith(_NARROW_END):
        end = _VALUE_END if rule_id == GENERIC else _WIDE_END
        pattern = pattern.removesuffix(_NARROW_END) + end
    elif pattern.endswith(_NOT_BASE64):
        pattern = pattern.removesuffix(_NOT_BASE64) + _WIDE_END
    elif pattern.endswith(r"\b)"):
        pattern = pattern.removesuffix(r"\b)") + ")" + _WIDE_END
    elif pattern.endswith(r"\b") and "(" in pattern:
        pattern = _grouped(pattern.removesuffix(r"\b")) + _WIDE_END
    if re.match(r"(\(\?i\))?\\b[\w(]", pattern):
        flags, _, rest = pattern.partition(r"\b")
        pattern = flags + _WIDE_START + _grouped(rest)
    return pattern


def _grouped(pattern: str) -> str:
    return pattern if regex(pattern).groups else f"({pattern})"


def _applies_to_text(allow: Mapping[str, Any]) -> bool:
    """Return whether an exception can apply to a text that has no path."""
    needs_path = bool(allow.get("paths")) and allow.get("condition", "OR") == "AND"
    return not needs_path and bool(allow.get("regexes") or allow.get("stopwords"))


def _allowlist(raw: Mapping[str, Any]) -> Allowlist:
    return Allowlist(
        target=raw.get("regexTarget", "secret"),
        regexes=tuple(regex(pattern) for pattern in raw.get("regexes", ())),
        stopwords=tuple(word.lower().encode() for word in raw.get("stopwords", ())),
    )


def _set_of(literals: Iterable[bytes]) -> Any:
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.literal = True
    one_pass = re2.Set.SearchSet(options)
    for literal in literals:
        one_pass.Add(literal)
    one_pass.Compile()
    return one_pass


def regex(pattern: str) -> Any:
    """Compile a pattern over bytes. Positions of matches are byte offsets."""
    import re2

    return re2.compile(pattern.encode("utf-8"))
