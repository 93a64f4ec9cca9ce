"""What servers said last is written down without secrets."""

from upwell.gateway.eras import united
from upwell.gateway.greeting import EVERYTHING, Known, remember, remembered
from upwell.ground.home import Home

KEY = "AKIA" + "Q3EGRDAZ5MFXN2WB"


def test_instructions_are_kept_without_their_secrets(tmp_path):
    home = Home(tmp_path)
    remember(home, Known({"tools": {}}, f"Use it.\nThe key is {KEY}, always."))
    assert KEY not in home.greeting_file.read_text()
    again = remembered(home)
    assert again.capabilities == {"tools": {}}
    assert again.instructions.startswith("Use it.\nThe key is [REDACTED:")


def test_capabilities_with_a_secret_are_not_kept(tmp_path):
    home = Home(tmp_path)
    remember(home, Known({"experimental": {"x": {"key": KEY}}}, "Use it."))
    assert KEY not in home.greeting_file.read_text()
    assert remembered(home) == Known(united([EVERYTHING]), "Use it.")
