"""Find the principal that a token belongs to."""

from collections.abc import Callable

from msgspec import Struct

from upwell.ground.types.principal import Principal
from upwell.web.oidc import InvalidToken, Verify
from upwell.web.tokens import PrincipalOf

_DOTS = 2
"""The number of dots in a signed JSON web token."""


Denied = Callable[[str, str], None]
"""Records who was refused, by name or address, and why."""


def ignore_denial(who: str, why: str) -> None:
    """Record nothing."""


class Denials(Struct, frozen=True):
    """The callbacks for refused requests. `principal` receives the name of a known principal.
    `stranger` receives the address of a sender without a valid token."""

    principal: Denied = ignore_denial
    stranger: Denied = ignore_denial


class Admission:
    """Finds principals. `principal_of()` looks up a token that upwell created, and `verify()`
    checks a token that an issuer signed. The guard reports most refused requests to `denied`."""

    def __init__(
        self,
        principal_of: PrincipalOf,
        verify: Verify | None = None,
        *,
        denied: Denials | None = None,
    ) -> None:
        self._principal_of = principal_of
        self._verify = verify
        self.denied = denied or Denials()

    async def find(self, token: str) -> Principal | InvalidToken | None:
        """Return the principal of a token, the reason for refusing it, or None if it is unknown."""
        found: Principal | InvalidToken | None = self._principal_of(token)
        if found is None and self._verify and token.count(".") == _DOTS:
            found = await self._verify(token)
        return found
