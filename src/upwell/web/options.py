"""The options of the HTTP doors."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcOptions:
    """`oidc.*`: the issuer and audience of the tokens, the address of its keys (found by discovery
    if it is empty), and the claims that hold the tenant, the role and the namespaces.
    """

    issuer: str = ""
    audience: str = ""
    keys_url: str = ""
    tenant_claim: str = ""
    role_claim: str = "role"
    namespaces_claim: str = "namespaces"
    leeway_seconds: float = 30.0
