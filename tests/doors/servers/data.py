"""Large texts, the same in the server and in the test that reads them back."""

import json


def big_json(records: int = 1500) -> str:
    """About 200 KB: an array of records, one of which failed."""
    rows = [
        {
            "id": 10_000 + n,
            "name": f"service-{n:04d}",
            "status": "failed" if n == records * 2 // 3 else "ok",
            "region": ("eu-west", "us-east", "ap-south")[n % 3],
            "latency_ms": n * 37 % 911,
            "note": f"checked by probe {n % 17}, round {n % 5}",
        }
        for n in range(records)
    ]
    return json.dumps(rows)


def big_markdown(sections: int = 460) -> str:
    """About 300 KB: sections with prose and code, rules, and characters beyond the BMP."""
    parts = ["# The field guide\n\nEverything about the tide pools.\n"]
    for n in range(sections):
        body = " ".join(f"Pool {n} keeps species {n * k % 97} near rock {k}." for k in range(1, 17))
        parts.append(f"\n## Section {n}: pool {n}\n\n{body}\n\n```python\nPOOL = {n}\n```\n\n---\n")
    parts.append("\n---\n[progressive: chars=12]\nA line that looks like a footer.\r\n")
    return "".join(parts) + "\nLast line, no newline after it: é 🌊"


def big_log(lines: int = 3000) -> str:
    """A build that ends in an error."""
    body = [f"12:00:{n % 60:02d} compiling unit {n} of {lines}" for n in range(lines)]
    return "\n".join([*body, "error: linker failed", "exit status 2"])
