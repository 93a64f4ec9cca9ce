"""Options for access over HTTP."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcOptions:
    """The `oidc.*` settings. `keys_url` is the address of the issuer's keys. If it is empty, the
    address is found by discovery. The `_claim` settings are the names of claims.
    """

    issuer: str = ""
    audience: str = ""
    keys_url: str = ""
    tenant_claim: str = ""
    role_claim: str = "role"
    namespaces_claim: str = "namespaces"
    leeway_seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """The `limits.*` settings. `requests_per_minute` applies to one token or subject at each
    replica, and `tenant_requests_per_minute` to a whole tenant. 0 means no limit. The owner's
    requests are not limited.
    """

    requests_per_minute: int = 0
    tenant_requests_per_minute: int = 0
    tenant_memories: int = 0
    tenant_notes: int = 0
