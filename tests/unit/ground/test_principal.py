"""What a principal sees and may change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upwell.ground.types.rpc import OWNER, Role, granted, is_visible, private_of, shared_only


@pytest.mark.parametrize(
    ("patterns", "seen", "unseen"),
    [
        ((), ("a", "me/x", "team/a"), ()),
        (("a",), ("a",), ("b", "a/b", "me/a", "A")),
        (("team/*",), ("team/a", "team/a/b"), ("team", "teams/a", "me/team/a")),
        (("*",), ("a", "team/a", "me"), ("me/", "me/x")),
        (("*", "me/k/*"), ("a", "me/k/x"), ("me/x", "me/k", "me/kk/x")),
    ],
)
def test_patterns_decide_which_namespaces_are_visible(patterns, seen, unseen) -> None:
    assert all(is_visible(name, patterns) for name in seen)
    assert not any(is_visible(name, patterns) for name in unseen)


@given(st.text(min_size=1), st.text(min_size=1), st.text(max_size=20))
def test_nobody_sees_the_private_namespaces_of_others(one: str, other: str, name: str) -> None:
    written = granted(one).stored(f"me/{name}")
    assert granted(one).sees(written)
    assert OWNER.sees(written)
    if one != other:
        assert not granted(other).sees(written)
        assert not granted(other, ["team/*", "*"]).sees(written)
        assert not granted(one).sees(granted(other).stored(written))


def test_the_shared_patterns_never_widen() -> None:
    assert shared_only(granted("ada").namespaces) == ("*",)
    assert shared_only(granted("ada", ["a"]).namespaces) == ("a",)
    assert shared_only((f"{private_of('ada')}*",)) == (f"{private_of('ada')}*",)
    assert shared_only(()) == ()


def test_roles_decide_who_may_write() -> None:
    reader, writer, admin = (granted("x", ["a", "b"], role=role) for role in Role)
    assert [p.may_write for p in (reader, writer, admin, OWNER)] == [False, True, True, True]
    assert [p.may_write_to("a", ["a"]) for p in (reader, writer, admin)] == [False, False, True]
    assert [p.may_write_to("b", ["a"]) for p in (reader, writer, admin)] == [False, True, True]
    assert not admin.may_write_to("c")
