"""`${NAME}` in a server's env and headers stands for a variable of the gateway's environment."""

import json
from pathlib import Path

from tests.conftest import Upwell
from tests.doors.conftest import Gateway, listening, script, write_config
from tests.doors.peer import text_of

UP = script("upstream")
TABLE = {"command": UP[0], "args": list(UP[1:])}
SECRET = {"TICKETS_TOKEN": "s3cret-of-this-server"}


def test_a_variable_of_a_program(gateway: Gateway) -> None:
    env = {"TOKEN": "${TICKETS_TOKEN}", "HEADER": "Bearer ${TICKETS_TOKEN}!", "PRICE": "$5 ${1}"}
    peer = gateway({"up": {**TABLE, "env": env}}, env=SECRET)
    peer.wait_for_tools("up__echo")
    seen = json.loads(text_of(peer.call("up__received")))["env"]
    assert seen["TOKEN"] == "s3cret-of-this-server"
    assert seen["HEADER"] == "Bearer s3cret-of-this-server!"
    assert seen["PRICE"] == "$5 ${1}", "anything else stays as written"
    assert "TICKETS_TOKEN" not in seen


def test_a_variable_in_a_header(gateway: Gateway) -> None:
    with listening("web") as url:
        header = {"Authorization": "Bearer ${TICKETS_TOKEN}"}
        peer = gateway({"web": {"url": url, "headers": header}}, env=SECRET)
        peer.wait_for_tools("web__headers")
        seen = {k.lower(): v for k, v in json.loads(text_of(peer.call("web__headers"))).items()}
        assert seen["authorization"] == "Bearer s3cret-of-this-server"


def test_a_missing_variable_fails_its_server_alone(
    gateway: Gateway, upwell: Upwell, home: Path
) -> None:
    write_config(home, {"up": UP, "lost": {**TABLE, "env": {"TOKEN": "${TICKETS_TOKEN}"}}})
    done = upwell("doctor")
    assert done.code != 0
    assert "the environment variable TICKETS_TOKEN is not set" in done.out
    peer = gateway()
    peer.wait_for_tools("up__echo")
    assert text_of(peer.call("up__echo", text="on")) == "on"


def test_a_variable_of_upwell_cannot_set_a_server(upwell: Upwell) -> None:
    done = upwell("config", "check", env={"UPWELL_SERVER__TICKETS__COMMAND": "tickets"})
    assert done.code != 0
    assert "UPWELL_SERVER__TICKETS__COMMAND has no effect" in done.err
