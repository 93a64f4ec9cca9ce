"""The daemon on loopback with a token, as where there are no Unix sockets (by switch: nothing was
run on such a system)."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.doors.hook_events import claude_read
from tests.doors.hooked import House
from upwell.hook.control import daemon_at
from upwell.hook.place import port_and_token, proof_of

ASKED = b"upwell/1 0.0.0 daemon status 0 0 0\n"


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    monkeypatch.setenv("UPWELL_HOOK_TCP", "1")
    house = House(tmp_path / "house")
    house.environment["UPWELL_HOOK_TCP"] = "1"
    kelp = {"text": "Kelp weights are kept in grams", "paths": ["src/kelp.py", "src/dulse.py"]}
    house.keep([kelp, *({"text": f"A note about {word}"} for word in ("rope", "sail"))])
    yield house
    house.stop()


def read(house: House, file: str) -> str:
    return str(house.hook("claude", event=claude_read(str(house.project), house.file(file))).json)


def said(port: int, *lines: bytes) -> bytes:
    """What the daemon says to somebody who connects and says these lines, one after the other."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
        with suppress(ConnectionError, OSError):
            for line in lines:
                peer.sendall(line)
                time.sleep(0.2)
            peer.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while chunk := peer.recv(65_536):
                heard += chunk
    return heard


def test_events_are_answered_and_the_daemon_is_told_about_and_ended(house: House) -> None:
    house.start()
    card = Path(house.place.socket)
    assert card.is_file()
    assert card.stat().st_mode & 0o777 == 0o600
    assert "kept in grams" in read(house, "kelp.py")
    assert read(house, "kelp.py") == "{}"
    assert str(house.home) in house.upwell("daemon", "status")
    house.upwell("daemon", "stop")
    assert not card.exists()
    assert daemon_at(str(house.home)) is None


def test_who_does_not_know_the_token_hears_nothing(house: House) -> None:
    house.start()
    port, token = port_and_token(house.place.socket)
    nonce = b"0" * 32
    proof = proof_of(token, "daemon", nonce.decode())
    assert said(port, ASKED) == proof_of(token, "daemon", ASKED.decode().strip())
    assert said(port, nonce + b"\n", ASKED) == proof
    assert said(port, nonce + b"\n", proof, ASKED) == proof, "its own proof said back"
    guessed = proof_of("0" * 64, "client", nonce.decode())
    assert said(port, nonce + b"\n", guessed, ASKED) == proof
    right = proof_of(token, "client", nonce.decode())
    assert b'"pid"' in said(port, nonce + b"\n", right + ASKED)
    assert "kept in grams" in read(house, "kelp.py")


def test_somebody_else_at_the_port_is_told_nothing(house: House) -> None:
    """The daemon was killed, its file is still there, and a stranger has its port."""
    house.start()
    daemon = daemon_at(str(house.home))
    assert daemon
    port, _ = port_and_token(house.place.socket)
    os.kill(daemon.pid, signal.SIGKILL)
    until = time.monotonic() + 10
    while daemon_at(str(house.home)) and time.monotonic() < until:
        time.sleep(0.05)
    heard: list[bytes] = []

    def stranger(listening: socket.socket) -> None:
        peer, _ = listening.accept()
        with peer:
            peer.settimeout(10)
            heard.append(peer.recv(65_536))
            peer.sendall(b"f" * 64 + b"\n")
            heard.append(peer.recv(65_536))

    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen()
        thread = threading.Thread(target=stranger, args=(listening,))
        thread.start()
        answer = read(house, "dulse.py")
        thread.join(20)
    assert "ffff" not in answer
    assert len(heard[0]) == 33
    assert heard[1] == b""


@pytest.mark.parametrize("text", ["", "x y", "0 " + "a" * 64, "70000 " + "a" * 64, "47000 short"])
def test_a_file_that_says_nothing_is_answered_without_a_daemon(house: House, text: str) -> None:
    house.start()
    house.stop()
    card = Path(house.place.socket)
    card.write_text(text)
    Path(house.place.starting).touch()
    assert "kept in grams" in read(house, "kelp.py")
    card.unlink()
    Path(house.place.starting).unlink()


def test_a_link_is_not_followed(house: House, tmp_path: Path) -> None:
    house.start()
    house.stop()
    (tmp_path / "elsewhere").write_text("47000 " + "a" * 64)
    card = Path(house.place.socket)
    card.symlink_to(tmp_path / "elsewhere")
    assert daemon_at(str(house.home)) is None
    card.unlink()
