"""Whole sentences are cited, even from wrapped lines, lists, tables and fences."""

import pytest

from upwell.memory.documents.quote import lines_for, quoted, statements

WRAPPED = """The billing service retries a failed
charge four times before it gives up. Refunds are never
retried; an operator confirms them in the back office, because
a double refund cost us a weekend. Invoices go out at
06:00 UTC."""
ITEMS = """Before a release:

1. Ask Ana whether the ledger is
   closed for the month. She needs
   a day.
2. Tag the commit.
   - only from main, and never
     on a Friday
3. Wait."""
TABLE = """| service | port | owner |
|---------|------|-------|
| ledger  | 7411 | Ana   |
| courier | 7412 | Jonas |"""
FENCE = """Restart the courier with:

```sh
systemctl stop courier
systemctl start courier
```

Nobody else may."""
LABELS = """Staging host: quartz
Staging port: 5433
Owner: Ana
Backups: nightly"""
HEADED = """## Phone list

1. Priya: 4411
2. Tomasz: 4412
   (after six: 4499)

The list is renewed in May."""
SPANISH = """El servicio de correo se
reinicia solo. ¿Quién avisa?
Ñandú avisa a todos
los que estén de guardia."""


@pytest.mark.parametrize(
    ("text", "query", "lines"),
    [
        (WRAPPED, "how often is a failed charge retried", (0, 1)),
        (WRAPPED, "who confirms refunds", (1, 3)),
        (WRAPPED, "when do invoices go out", (3, 4)),
        (WRAPPED.replace("\n", "\r\n"), "who confirms refunds", (1, 3)),
        (ITEMS, "is the ledger closed", (2, 3)),
        (ITEMS, "tag the commit", (5, 5)),
        (ITEMS, "what never happens on a Friday", (6, 7)),
        (ITEMS, "what is done before a release", (0, 8)),
        (TABLE, "courier port", (3, 3)),
        (TABLE, "which port has the ledger", (2, 2)),
        (TABLE, "owner", (0, 3)),
        (FENCE, "how is the courier restarted", (0, 5)),
        (FENCE, "systemctl stop", (3, 3)),
        (LABELS, "what is the staging port", (1, 1)),
        (LABELS, "owner", (2, 2)),
        (HEADED, "phone number of Tomasz after six", (3, 4)),
        (HEADED, "phone list", (0, 6)),
        (HEADED, "when is the phone list renewed", (6, 6)),
        (SPANISH, "quien avisa a los de guardia", (2, 3)),
        (SPANISH, "el servicio de correo", (0, 1)),
    ],
)
def test_the_cited_lines_are_whole(text: str, query: str, lines: tuple[int, int]) -> None:
    assert lines_for(text, [query]) == lines


def test_the_part_after_a_colon_is_shown_with_it() -> None:
    shown = quoted(FENCE, ["how is the courier restarted"])
    assert "systemctl start courier" in shown
    assert "Nobody else" not in shown


def test_an_item_introduces_only_deeper_items() -> None:
    text = "- Deploy:\n  - build\n  - push\n- Rest"
    assert [(statement.first, statement.until) for statement in statements(text)] == [
        (0, 2),
        (1, 1),
        (2, 2),
        (3, 3),
    ]


def test_an_incomplete_line_continues() -> None:
    text = "The lock is taken in\n`src/db/migrate.py` by\nAna's script, and\nNobody else."
    assert [(statement.first, statement.last) for statement in statements(text)] == [(0, 3)]


@pytest.mark.parametrize("text", ["", "\n\n", ":", "a:\n\n", "- x:\n", "# h\n", "```\n", "| a |\n"])
def test_edges_have_lines_that_exist(text: str) -> None:
    for statement in statements(text):
        assert 0 <= statement.first <= statement.last <= statement.until <= text.count("\n")
        assert text[statement.start : statement.end].strip()


def test_only_a_single_item_loses_its_mark() -> None:
    items = "- alpha beta\n- gamma beta\n"
    assert quoted(items, ["alpha"]) == "alpha beta"
    assert quoted(items, ["alpha gamma"]) == "- alpha beta\n- gamma beta"
