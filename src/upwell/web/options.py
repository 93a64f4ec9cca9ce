"""Options for access over HTTP."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcOptions:
    """The settings `oidc.*`: the issuer and audience of the tokens, the address of the issuer's
    keys (if empty, it is found by discovery), and the names of the claims for the tenant, the role
    and the namespaces.
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
    """The settings `limits.*`: how many requests one token or subject, or a whole tenant, may send
    to each replica in a minute, and how many memories and short notes a tenant may have. 0 means no
    limit. The owner's requests are not limited.
    """

    requests_per_minute: int = 0
    tenant_requests_per_minute: int = 0
    tenant_memories: int = 0
    tenant_notes: int = 0
