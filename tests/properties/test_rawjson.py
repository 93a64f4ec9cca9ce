"""Foreign JSON comes out as it went in."""

import json
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upwell.wire import rawjson
from upwell.wire.rawjson import NotJson, RawArray, RawObject, dumps, loads

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=20)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)
objects = st.dictionaries(st.text(max_size=8), values, max_size=6)


@given(objects, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_members_keep_their_bytes_and_order(value, indent, ascii_only):
    raw = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    opened = RawObject.parse(raw)
    assert [loads(key) for key, _ in opened.members] == list(value)
    assert json.loads(opened.encode()) == value
    assert all(member in raw for pair in opened.members for member in pair)


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "é", 'q"', "\n"]), values), max_size=5),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,", ":")]),
    st.booleans(),
)
def test_the_fast_parser_gives_what_the_exact_one_gives(pairs, marks, ascii_only):
    comma, colon = marks
    keys = [json.dumps(key, ensure_ascii=ascii_only) for key, _ in pairs]
    items = [json.dumps(value, separators=marks, ensure_ascii=ascii_only) for _, value in pairs]
    members = comma.join(map(colon.join, zip(keys, items, strict=True)))
    raw, array = f"{{{members}}}".encode(), f"[{comma.join(items)}]".encode()
    assert RawObject.parse(raw).members == tuple(rawjson._split(raw, b"{", b"}"))
    exact = tuple(item for _, item in rawjson._split(array, b"[", b"]"))
    assert RawArray.parse(array).items == exact


@given(st.lists(values, max_size=6))
def test_arrays_keep_their_bytes_and_order(value):
    raw = json.dumps(value).encode()
    assert [loads(item) for item in RawArray.parse(raw).items] == value


@given(objects, st.text(max_size=8), values)
def test_replacing_changes_one_member_only(value, name, new):
    changed = RawObject.parse(json.dumps(value).encode()).replaced(name, dumps(new))
    assert json.loads(changed.encode()) == {**value, name: new}


def test_a_name_that_is_not_utf_8_stays_as_written():
    assert RawObject.parse(b'{"\xff":1}').members == ((b'"\xff"', b"1"),)


@given(st.binary(max_size=60))
def test_rubbish_is_read_or_refused_and_never_crashes(raw):
    try:
        RawObject.parse(raw)
    except NotJson:
        return
    assert raw.strip().startswith(b"{")


@pytest.mark.parametrize(
    "member",
    [
        b"1.10",
        b"1e2",
        b"1E400",
        b"123456789012345678901234567890",
        b'"\\ud83d"',
        b'"\\u0000"',
        b"[[1,{}],[]]",
        b'"a\\\\\\""',
        b"[" * 100_000 + b"]" * 100_000,
    ],
    ids=lambda raw: raw[:12].decode(),
)
def test_values_stay_as_written(member):
    raw = b'{"a":' + member + b',"a":2,"id":1}'
    opened = RawObject.parse(raw)
    assert opened.members[0][1] == member
    assert opened.replaced("id", b"77").encode() == raw.replace(b'"id":1', b'"id":77')
    assert opened.get("a") == b"2"


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b'{"a"}', b'{"a":}', b'{"a":1,}', b'{"a":1}x', b"[1]", b'{"a":"x', b"{a:1}"],
)
def test_a_value_that_is_not_an_object_is_refused(raw):
    with pytest.raises(NotJson):
        RawObject.parse(raw)


def test_a_lone_surrogate_is_written_as_an_escape():
    assert dumps("\ud83d") == b'"\\ud83d"'
    assert dumps("ñ") == '"ñ"'.encode()


STRINGS = [
    b"a" * 20_000,
    b'\\"' * 9_000,
    b"\\\\" * 9_000,
    b"a" * 5_000 + b'\\"' + b"b" * 9_000,
    b"",
]


@pytest.mark.parametrize("text", STRINGS)
def test_a_long_string_ends_at_its_own_quote(text: bytes) -> None:
    value = b'"' + text + b'"'
    raw = b'{"a":' + value + b',"b":[' + value + b',{"c":' + value + b'}],"d":"}"}'
    members = dict(RawObject.parse(raw).members)
    assert members[b'"a"'] == value
    assert RawArray.parse(members[b'"b"']).items == (value, b'{"c":' + value + b"}")
    assert members[b'"d"'] == b'"}"'
    for cut in (len(raw) - 1, len(raw) - 4, 5 + len(text)):
        with pytest.raises(NotJson):
            RawObject.parse(raw[:cut])


def test_an_image_of_megabytes_is_searched_and_not_matched() -> None:
    image = b'"' + b"QUJD" * 2_500_000 + b'"'
    raw = b'{"content":[{"type":"image","data":' + image + b"}]}"
    searched = min(cpu_of(lambda: RawObject.parse(raw)) for _ in range(3))
    copied = min(cpu_of(lambda: b"".join((raw, b"x"))) for _ in range(3))
    assert searched <= 10 * copied + 0.01


def cpu_of(action: Callable[[], object]) -> float:
    begun = time.thread_time()
    action()
    return time.thread_time() - begun
