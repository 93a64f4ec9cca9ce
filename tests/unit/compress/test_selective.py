"""The table of contents and the sections that it lists, and searching an original."""

import json

import pytest

from upwell.compress.base import RemainingBudget
from upwell.compress.compressor import Compressor
from upwell.compress.selective import MAX_ENTRIES, search_original, sections_of, select, table
from upwell.ground.types.compression import Budget, Passage, TextKind

DOC = "\n".join(f"## Part {n}\n\nBody of part {n} with words. " * 3 for n in range(30))


def passage(text: str, kind: TextKind = TextKind.MARKDOWN, query: str = "") -> Passage:
    return Passage(text=text, kind=kind, query=query, key="k1")


def test_a_table_of_contents_names_its_key_size_and_sections() -> None:
    toc = json.loads(table(passage(DOC), RemainingBudget()))
    assert toc["type"] == "toc"
    assert toc["selection_key"] == "k1"
    assert toc["total_chars"] == len(DOC)
    assert "Part 3" in [entry["key"] for entry in toc["entries"]]
    assert len({entry["key"] for entry in toc["entries"]}) == len(toc["entries"])


def test_previews_shrink_and_every_entry_stays() -> None:
    full = json.loads(table(passage(DOC), RemainingBudget()))
    tight = json.loads(table(passage(DOC), RemainingBudget(chars=100)))
    assert [e["key"] for e in tight["entries"]] == [e["key"] for e in full["entries"]]
    assert not any("preview" in entry for entry in tight["entries"])


def test_entries_are_ranked_by_the_question() -> None:
    toc = json.loads(table(passage(DOC, query="what does part 17 say"), RemainingBudget()))
    assert toc["entries"][0]["key"].startswith("Part 17")


def test_sections_are_verbatim_and_in_the_requested_order() -> None:
    text = json.dumps({"a": [1, 2], "b": {"c": 1.10}})
    chosen = select(passage(text, TextKind.JSON_OBJECT), ["b", "a", "zz"], RemainingBudget())
    assert chosen.text == '{"c": 1.1}\n[1, 2]'
    assert chosen.unknown == ("zz",)
    assert chosen.next_offset is None


def test_a_selection_over_budget_continues_at_its_offset() -> None:
    parts, offset = [], 0
    while True:
        chosen = select(passage(DOC), ["Part 1", "Part 2"], RemainingBudget(chars=50), offset)
        parts.append(chosen.text)
        if chosen.next_offset is None:
            break
        offset = chosen.next_offset
    assert "".join(parts) == select(passage(DOC), ["Part 1", "Part 2"], RemainingBudget()).text


def test_many_tiny_paragraphs_are_grouped_and_reachable() -> None:
    text = "\n".join(f"# {n}" for n in range(3_000))
    document = passage(text)
    toc = json.loads(table(document, RemainingBudget()))
    assert len(toc["entries"]) <= MAX_ENTRIES
    assert len(json.dumps(toc)) < 60_000
    group = toc["entries"][-1]["key"]
    inner = json.loads(select(document, [group], RemainingBudget()).text)
    assert any(entry["key"] == "2999" for entry in inner["entries"])
    assert select(document, ["2999"], RemainingBudget()).text == "# 2999"


def test_one_character_paragraphs() -> None:
    document = passage("a\n\n" * 20_000, TextKind.TEXT)
    assert len(table(document, RemainingBudget())) < 60_000


def test_the_strategy_needs_a_key() -> None:
    result = Compressor().compress(passage(DOC), Budget(max_chars=400), "selective")
    assert result.strategy == "selective"
    assert json.loads(result.text)["entries"]


@pytest.mark.parametrize("chars", [1_500, 3_000, 6_000])
def test_the_table_of_a_long_array_is_paged_within_its_budget(chars: int) -> None:
    records = [{"id": number, "body": "lorem ipsum " * 9} for number in range(300)]
    passage = Passage(text=json.dumps(records), kind=TextKind.JSON_ARRAY, key="k")
    toc = table(passage, RemainingBudget(chars=chars))
    assert chars / 2 < len(toc) <= chars
    keys = [entry["key"] for entry in json.loads(toc)["entries"]]
    reached = []
    for key in keys:
        inner = json.loads(select(passage, [key], RemainingBudget()).text)
        reached += [entry["key"] for entry in inner["entries"]]
    assert reached == [f"[{number}]" for number in range(300)]


def test_keys_are_unique_when_a_heading_looks_like_a_suffix() -> None:
    text = "# a\n\none\n\n# a#2\n\ntwo\n\n# a\n\nthree\n\n# a\n\nfour\n"
    doc = passage(text)
    assert [section.key for section in sections_of(doc)] == ["a", "a#2", "a#3", "a#4"]
    assert select(doc, ["a#2"], RemainingBudget()).text == "# a#2\n\ntwo"


def test_lines_have_their_offset() -> None:
    text = "\n".join(f"line {n} about nothing" for n in range(300)) + "\nthe zebra crossed\n"
    result = search_original(text, "zebra", RemainingBudget(chars=200))
    position, *reply = result.text.splitlines()
    assert position == f"[offset {text.index('line 298')}] line 299"
    assert reply == ["line 298 about nothing", "line 299 about nothing", "the zebra crossed"]


def test_adjacent_matches_are_merged() -> None:
    rows = [f"row {n}" for n in range(100)]
    rows[20] = rows[21] = rows[70] = "a zebra"
    result = search_original("\n".join(rows), "zebra", RemainingBudget(chars=900))
    assert (result.shown, result.total) == (2, 2)
    assert result.text.count("[offset") == 2


def test_json_values_have_their_path() -> None:
    text = json.dumps([{"id": n, "owner": {"login": f"user{n}"}} for n in range(50)])
    result = search_original(text, "owner login user33", RemainingBudget(chars=300))
    first = result.text.splitlines()[0]
    assert 'owner login: "user33"' in first
    assert f"[offset {text.index('"user33"')}]" in first


def test_a_search_without_matches_is_empty() -> None:
    assert search_original("some words", "zebra", RemainingBudget()).total == 0
    assert search_original("some words", "", RemainingBudget()).text == ""
