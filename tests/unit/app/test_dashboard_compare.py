"""The page that compares an original with the text that the agent saw."""

import re
from pathlib import Path

from tests.unit.app.test_cuts import shortened as shorten

from upwell.app import Settings, build
from upwell.app.dashboard.sessions import MAX_LINES, shortened

LINES = 20_000
LOG = "\n".join(f"{number:05} ship {number * 7919 % 10_007} left" for number in range(LINES))


async def test_the_lines_left_out_are_counted_in_the_whole_original(tmp_path: Path) -> None:
    app = await build(Settings(home=tmp_path, environment={}))
    try:
        await shorten(app, LOG)
        [cut] = await app.cuts.latest(1)
        page = await shortened(app, {"id": cut["id"]})
        [text] = page["texts"]
        assert text["omitted"] > MAX_LINES
        assert (text["lines"], text["is_cut"]) == (LINES, True)
        assert sum(len(block["lines"]) for block in text["blocks"]) == MAX_LINES
        own = re.search(r"([\d,]+) of 20,000 lines left out", text["seen"])
        assert own
        assert text["omitted"] == int(own[1].replace(",", ""))
        assert page["session"] == "s"
    finally:
        await app.aclose()
