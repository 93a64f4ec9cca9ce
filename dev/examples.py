"""Write the examples of `docs/compression.md` anew, as the code makes them: `make examples`."""

from pathlib import Path

from upwell.compress.examples import page

PAGE = Path(__file__).parents[1] / "docs" / "compression.md"
FIRST = "### `auto`"

text = PAGE.read_text(encoding="utf-8")
PAGE.write_text(text[: text.index(FIRST)] + page(), encoding="utf-8")
