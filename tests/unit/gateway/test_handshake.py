"""What servers offer (instructions and capabilities) is saved without secrets."""

from upwell.gateway.eras import EVERYTHING, GatewayOffer, united
from upwell.gateway.front.handshake import load_offer, save_offer
from upwell.ground.files import Home

KEY = "AKIA" + "Q3EGRDAZ5MFXN2WB"


def test_instructions_are_kept_without_their_secrets(tmp_path):
    home = Home(tmp_path)
    save_offer(home, GatewayOffer({"tools": {}}, f"Use it.\nThe key is {KEY}, always."))
    assert KEY not in home.offer_file.read_text()
    again = load_offer(home)
    assert again.capabilities == {"tools": {}}
    assert again.instructions.startswith("Use it.\nThe key is [REDACTED:")


def test_capabilities_with_a_secret_are_not_kept(tmp_path):
    home = Home(tmp_path)
    save_offer(home, GatewayOffer({"experimental": {"x": {"key": KEY}}}, "Use it."))
    assert KEY not in home.offer_file.read_text()
    assert load_offer(home) == GatewayOffer(united([EVERYTHING]), "Use it.")
