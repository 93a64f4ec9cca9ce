"""Of many objects that make no table, some are kept whole: the first, the last, the odd ones."""

import json
from typing import Any

from upwell.compress import compress


def orders(count: int) -> list[dict[str, Any]]:
    """Orders with one to three lines each, so that they make no table."""
    return [
        {
            "id": n,
            "customer": {"name": f"Customer {n}"},
            "status": "payment failed" if n == 211 else ("open", "paid")[n % 2],
            "lines": [{"sku": f"SKU-{n}-{k}", "qty": n % 3} for k in range(1 + n % 3)],
        }
        for n in range(1, count + 1)
    ]


def test_whole_records_are_kept_and_the_rest_is_counted() -> None:
    source = orders(400)
    result = compress(json.dumps(source), max_tokens=2_000)
    *stored, mark = json.loads(result.text)
    full = [entry for entry in stored if entry in source]
    assert len(full) >= len(stored) - 1
    assert len(full) >= 10
    assert {1, 2, 211, 400} <= {entry["id"] for entry in full}
    assert f"{400 - len(stored)} left out" in mark["…"]


def test_answers_come_first() -> None:
    source = {"orders": orders(400)}
    result = compress(
        json.dumps(source), max_tokens=800, query="which sku in order of Customer 307?"
    )
    assert "Customer 307" in result.text
    assert "SKU-307-0" in result.text


def test_the_mark_counts_shortened_records() -> None:
    source = [{"id": n, "text": f"{n} " + "word " * 40, "more": {"x": n}} for n in range(8)]
    result = compress(json.dumps(source), max_chars=400)
    mark = json.loads(result.text)[-1]["…"]
    assert "of 8 items shortened" in mark


def test_a_line_of_a_record_stays_with_the_name_of_the_record() -> None:
    words = ("calm", "rough", "foggy", "stormy")
    text = "\n".join(
        f"Name: harbor-{n}\nPort: {8000 + n}\nWeather: {words[n % 4]} {n * 37}\nCranes: {n}\n"
        for n in range(40)
    )
    lines = compress(text, max_chars=600, query="where is the weather foggy 962?").text.split("\n")
    assert lines.index("Name: harbor-26") < lines.index("Weather: foggy 962")
    names = [line for line in lines[: lines.index("Weather: foggy 962")] if line[:5] == "Name:"]
    assert names[-1] == "Name: harbor-26"
