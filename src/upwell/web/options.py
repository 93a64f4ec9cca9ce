"""Options for access over HTTP."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcOptions:
    """The `oidc.*` settings. `keys_url` is the address of the issuer's keys. If it is empty, the
    address is found by discovery. The settings that end in `_claim` are names of claims.
    """

    issuer: str = ""
    audience: str = ""
    keys_url: str = ""
    role_claim: str = "role"
    namespaces_claim: str = "namespaces"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """The `limits.*` settings. `requests_per_minute` limits each principal except the owner; 0
    means no limit."""

    requests_per_minute: int = 0
