"""A stand-in for `qmd` 2.8: its command line and its JSON, over the folder in `FAKE_QMD_ROOT`.

As in the real program, `search` requires every word, and with few documents every score is 0.
`FAKE_QMD` makes it fail: `hang`, `crash`, `rubbish`, `object`, `flood`, and `no collections` only
when it is asked for a collection.
"""

import json
import os
import sys
import time
from pathlib import Path

ROOT = Path(os.environ["FAKE_QMD_ROOT"])


def passages(words: list[str]) -> list[dict[str, object]]:
    collected = []
    for file in sorted(ROOT.rglob("*.md")):
        lines = file.read_text().split("\n")
        body = "\n".join(lines).lower()
        if not all(word in body for word in words):
            continue
        at = next(i for i, line in enumerate(lines) if any(w in line.lower() for w in words))
        shown = lines[max(0, at - 1) : at + 3]
        head = f"@@ -{max(0, at - 1) + 1},{len(shown)} @@ (0 before, 0 after)\n"
        collected.append(
            {
                "docid": "#abcdef",
                "score": 0,
                "file": f"qmd://notes/{file.relative_to(ROOT)}",
                "line": at + 1,
                "title": file.stem,
                "snippet": head + "\n".join(shown),
            }
        )
    return collected


def fail(how: str) -> None:
    if how == "hang":
        time.sleep(60)
    elif how == "crash":
        sys.exit("SqliteError: database disk image is malformed")
    elif how == "rubbish":
        print("Downloading model 12% …")
    elif how == "object":
        print('{"error": "x"}')
    elif how == "flood":
        for _ in range(600):
            print("x" * 10_000)


def main() -> None:
    args = sys.argv[1:]
    with open(ROOT.parent / "asked", "a") as log:
        log.write(json.dumps([args, os.getcwd(), sorted(os.environ)]) + "\n")
    how = os.environ.get("FAKE_QMD")
    if how == "no collections" and args[0] == "collection":
        sys.exit("SqliteError: database is locked")
    if how and how != "no collections":
        return fail(how)
    assert "--" in args or args == ["status"], args
    if args == ["status"]:
        print(f"QMD Status\n\nDocuments\n  Total:    {len(list(ROOT.rglob('*.md')))} files indexed")
    elif args[:2] == ["collection", "show"]:
        print(f"Collection: {args[-1]}\n  Path:     {ROOT}\n  Pattern:  **/*.md")
    elif args[0] == "get":
        path, *part = args[-1].removeprefix("qmd://notes/").rsplit(":", 2)
        first, count = part or ("1", "100000")
        if not (ROOT / path).exists():
            sys.exit(f"Document not found: {args[-1]}")
        lines = (ROOT / path).read_text().split("\n")[int(first) - 1 :][: int(count)]
        print(f"qmd://notes/{path}  #abcdef\n---\n\n" + "\n".join(lines))
    else:
        print(json.dumps(passages(args[-1].lower().split())))


main()
