"""Find the principal that a token belongs to, and limit the request rates of principals."""

from collections import OrderedDict
from collections.abc import Callable
from math import ceil

from msgspec import Struct

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.types.principal import Principal
from upwell.web.oidc import InvalidToken, Verify
from upwell.web.options import LimitOptions
from upwell.web.tokens import PrincipalOf

_DOTS = 2
"""The number of dots in a signed JSON web token."""
_MINUTE = 60.0
MAX_TRACKED = 20_000


class TooMany(Struct, frozen=True):
    """A request exceeds a rate limit. The next one is admitted after `retry_after` seconds."""

    reason: str
    retry_after: int


class Bucket:
    """A token bucket that admits `per_minute` requests on average, and as many in one burst."""

    def __init__(self, per_minute: int, now: float) -> None:
        self._per_minute = per_minute
        self._left = float(per_minute)
        self._at = now

    def wait(self, now: float) -> float:
        """Return the seconds until one more request is admitted, or 0 if it is admitted now."""
        rate = self._per_minute / _MINUTE
        self._left = min(float(self._per_minute), self._left + (now - self._at) * rate)
        self._at = now
        return 0.0 if self._left >= 1.0 else (1.0 - self._left) / rate

    def take(self) -> None:
        self._left -= 1.0


class Rates:
    """The rate limits of this process. At most `MAX_TRACKED` principals have a bucket; the least
    recently seen is dropped, and starts with a full bucket if it returns."""

    def __init__(self, options: LimitOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        self._options = options
        self._clock = clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, principal: Principal) -> TooMany | None:
        """Count a request, or refuse it. The owner's requests are not limited."""
        most = self._options.requests_per_minute
        if not principal.name or not most:
            return None
        now = self._clock.monotonic()
        bucket = self._bucket(principal.name, most, now)
        if wait := bucket.wait(now):
            return TooMany(f"you may make {most} requests a minute", ceil(wait))
        bucket.take()
        return None

    def _bucket(self, name: str, most: int, now: float) -> Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= MAX_TRACKED:
                self._buckets.popitem(last=False)
            bucket = self._buckets[name] = Bucket(most, now)
        self._buckets.move_to_end(name)
        return bucket


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
        rates: Rates | None = None,
        denied: Denials | None = None,
    ) -> None:
        self._principal_of = principal_of
        self._verify = verify
        self._rates = rates
        self.denied = denied or Denials()

    async def find(self, token: str) -> Principal | InvalidToken | None:
        """Return the principal of a token, the reason for refusing it, or None if it is unknown."""
        found: Principal | InvalidToken | None = self._principal_of(token)
        if found is None and self._verify and token.count(".") == _DOTS:
            found = await self._verify(token)
        return found

    def count(self, principal: Principal) -> TooMany | None:
        """Count a request from a principal, or refuse it."""
        return self._rates.take(principal) if self._rates else None
