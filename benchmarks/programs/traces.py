"""Prints tracebacks of many kinds, as a failing service would."""

import decimal
import ipaddress
import json
import sys
import traceback
from collections.abc import Callable

CASES: list[Callable[[], object]] = [
    lambda: json.loads("{bad"),
    lambda: decimal.Decimal("x1y"),
    lambda: ipaddress.ip_address("999.1"),
    lambda: open("/nonexistent/settings-42.toml"),  # noqa: SIM115
    lambda: {}["missing_key_7"],
    lambda: int("12z"),
    lambda: [].pop(),
    lambda: getattr(3, "frobnicate"),  # noqa: B009
    lambda: "a" + 1,  # type: ignore[operator]
]


def deep(case: Callable[[], object], level: int) -> object:
    return case() if not level else deep(case, level - 1)


for number, case in enumerate(CASES * 3):
    try:
        deep(case, number % 5 + 1)
    except Exception as error:
        print(f"--- worker-{number} request req-{number * 7919 % 10007:05d} after {number * 37} ms")
        traceback.print_exception(error, file=sys.stdout)
