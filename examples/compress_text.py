"""Fit a text to a budget, with a question in mind, and list the omissions.

python examples/compress_text.py [FILE] [QUESTION]
"""

import json
import sys
from pathlib import Path

from upwell.compress import compress

RECORDS = [
    {"id": n, "host": f"web-{n}", "state": "ok" if n != 42 else "disk full"} for n in range(300)
]


def main() -> None:
    text = Path(sys.argv[1]).read_text(encoding="utf-8") if sys.argv[1:] else json.dumps(RECORDS)
    question = sys.argv[2] if sys.argv[2:] else "what is the state of web-42?"
    fitted = compress(text, max_tokens=200, query=question)
    print(fitted.text)
    print(f"\n{fitted.strategy}: {fitted.before:,} characters became {fitted.after:,}")
    for omission in fitted.omitted:
        print(f"left out: {omission.count:,} of {omission.total:,} {omission.what}")


if __name__ == "__main__":
    main()
