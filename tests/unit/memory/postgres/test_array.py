"""Array literals, read back by a real PostgreSQL."""

import psycopg
import pytest
from tests.postgres import cluster

from upwell.memory.postgres.writing import array

HOSTILE = [
    '"',
    "\\",
    '\\"',
    "{}",
    ",",
    "NULL",
    "",
    " ",
    "a\nb\tc",
    "é\u2028😀",
    "'; --",
    "%(x)s",
    "\x01",
]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (HOSTILE, "text"),
        ([f"{a}{b}" for a in HOSTILE for b in HOSTILE], "text"),
        ([], "text"),
        ([], "bigint"),
        ([0, -1, 2**63 - 1, -(2**63)], "bigint"),
        ([0.1, 1, 1e-300, -1.5e300, 1 / 3], "float8"),
        (["a", None], "text"),
        ([True, False], "boolean"),
        ([b"\x00\xff", None], "bytea"),
    ],
)
def test_a_literal_is_read_as_it_was_written(values: list[object], kind: str) -> None:
    with psycopg.connect(cluster().emptied()) as connection:
        row = connection.execute(f"SELECT %s::{kind}[]", [array(values)]).fetchone()  # type: ignore[arg-type]
        assert row == (values,)


def test_long_lists_of_texts_and_numbers_become_literals() -> None:
    assert array(["a", 'b"']) == r'{"a","b\""}'
    assert array([1, 2.5]) == "{1,2.5}"
    assert array([1, "a"]) == [1, "a"]
