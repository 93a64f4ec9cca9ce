"""A language model that never answers holds nothing up but the summaries that wait for it."""

import time
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from threading import Thread

from tests.doors.address import Address, serving
from tests.doors.conftest import script, write_config
from tests.doors.reading import everything
from tests.doors.seeds.model import serving as model_at

PROSE = "Some prose about nothing in particular follows here. " * 400
SUMMARIES = {"compress": {"strategy": "llm_summary"}}


def start_calls(address: Address, number: int, tool: str, **arguments: str) -> list[Thread]:
    """Calls of a tool, each in a session of its own, that nobody waits for."""

    def call(number: int) -> None:
        numbered = {key: f"{number} {value}" for key, value in arguments.items()}
        with suppress(OSError, HTTPException):  # the gateway ends first
            address.begin().post("tools/call", 1, {"name": tool, "arguments": numbered})

    calls = [Thread(target=call, args=(n,), daemon=True) for n in range(number)]
    for each in calls:
        each.start()
    return calls


def test_a_model_that_never_answers_holds_no_other_call_up(tmp_path: Path) -> None:
    home, upstream = tmp_path / "home", script("upstream", "--state", str(tmp_path))
    with model_at("too late", seconds=120) as model:
        tables = {
            "compress": {"max_result_tokens": 300},
            "llm": {"base_url": model.address, "model": "m"},
            'tool."up__big_markdown"': SUMMARIES,
            'tool."up__say"': SUMMARIES,
        }
        write_config(home, {"up": upstream, "two": upstream}, **tables)
        with serving(home, tmp_path / "serve.log") as address:
            agent = address.begin()
            waiting = start_calls(address, 8, "up__say", text=PROSE)
            waiting += start_calls(address, 2, "up__big_markdown")
            until = time.monotonic() + 60
            while len(model.prompts) < len(waiting):
                assert time.monotonic() < until, "every call asks the model"
                time.sleep(0.05)
            for tool in ("two__say", "two__big_json", "up__big_json", "up__say"):
                arguments = {"text": PROSE} if tool.endswith("say") else {}
                shown = everything(agent.call(tool, **arguments))
                assert 'key="' in shown, tool
            assert all(call.is_alive() for call in waiting), "still waiting for the model"
