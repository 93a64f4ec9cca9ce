"""Options for access over HTTP."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcOptions:
    """The `oidc.*` settings. `keys_url` is the address of the issuer's keys. If it is empty, the
    address is found by discovery. `role_claim` is the name of the claim with the role.
    """

    issuer: str = ""
    audience: str = ""
    keys_url: str = ""
    role_claim: str = "role"
