"""`upwell replay --judge` with a scripted model."""

import json
from pathlib import Path

from tests.conftest import Upwell
from tests.scripted_model import ScriptedModel, naming, serving, silent
from tests.unit.replay import samples

QUESTION = "Why does the harbour pump stall in winter?"
NOTE = "The harbour pump stalls because the intake grille ices over below minus five degrees."


def session(folder: Path) -> str:
    """A session of one question, in a folder that no longer exists."""
    record = samples.claude_record("user", "10:00:00", QUESTION, cwd="/gone")
    return str(samples.lines(folder / f"{samples.SESSION}.jsonl", [record]))


def replay(upwell: Upwell, path: str, model: ScriptedModel, *args: str) -> str:
    variables = {
        "UPWELL_LLM__BASE_URL": model.address,
        "UPWELL_LLM__MODEL": "gpt-4.1",
    }
    done = upwell("replay", path, *args, env=variables)
    assert done.code == 0, done.err
    return done.out


def test_the_model_decides_and_the_summary_prices_it(upwell: Upwell, tmp_path: Path) -> None:
    notes = [{"id": "pump", "text": NOTE, "created_at": "2026-01-02T00:00:00Z"}]
    assert upwell("import", str(samples.lines(tmp_path / "notes.jsonl", notes))).code == 0
    path = session(tmp_path / "sessions")
    usage = {"prompt_tokens": 700, "completion_tokens": 30}
    with serving(ScriptedModel(naming("grille"), seconds=0.3, usage=usage)) as model:
        *decisions, last = map(
            json.loads, replay(upwell, path, model, "--judge", "--json").split("\n")[:-1]
        )
        assert [hit["id"] for one in decisions for hit in one["memories"]] == ["pump"]
        judge = last["summary"]["judge"]
        assert (judge["asked"], judge["chosen"], judge["tokens_in"]) == (1, 1, 700)
        assert judge["cost"] == 0.00164
        model.part = silent
        out = replay(upwell, path, model, "--judge")
        assert "1  the judge found no candidate worth mentioning" in out
        assert "Shortening:" not in out, "no tool results, so no savings to speak of"
        assert (
            "Judge: asked once: 0 chosen, 1 nothing, 0 failed; 700 + 30 tokens, cost 0.0016" in out
        )
        asked = len(model.requests)
        assert "judge" not in replay(upwell, path, model, "--json")
        assert len(model.requests) == asked, "not without --judge"


def test_without_a_model_it_says_what_to_set(upwell: Upwell, tmp_path: Path) -> None:
    done = upwell("replay", session(tmp_path / "sessions"), "--judge")
    assert done.code == 2
    assert "llm.base_url" in done.err
