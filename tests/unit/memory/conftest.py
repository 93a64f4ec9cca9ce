"""Fixtures of the tests of memory."""

from tests.machines import shared, team, url

__all__ = ["shared", "team", "url"]
