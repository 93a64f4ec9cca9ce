"""Options for access over HTTP."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcOptions:
    """The `oidc.*` settings. `role_claim` is the name of the claim with the role."""

    issuer: str = ""
    audience: str = ""
    role_claim: str = "role"
