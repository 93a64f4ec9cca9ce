"""Addresses that a server names for a login, in every notation."""

import asyncio

import pytest

from upwell.setup.login import Callback, LoginRequest, _provider, check, check_resolved

REMOTE, HERE, LAN = (
    "https://mcp.example.org/mcp",
    "http://127.0.0.1:9000/mcp",
    "http://10.0.0.5/mcp",
)
METADATA = [
    "https://169.254.169.254/latest",
    "https://[::ffff:169.254.169.254]/x",
    "https://[::ffff:a9fe:a9fe]/",
    "https://[64:ff9b::a9fe:a9fe]/",
    "https://[2002:a9fe:a9fe::1]/",
    "https://2852039166/",
    "https://0xa9fea9fe/",
    "https://0251.0376.0251.0376/",
    "https://169.254.43518/",
    "https://metadata.google.internal./",
    "https://METADATA.google.internal/",
    "https://metadata/",
    "https://100.100.100.200/",
    "https://[fd00:ec2::254]/",
    "https://169.254.169.254.nip.io/",
    "https://169-254-169-254.sslip.io/",
    "https://x-169-254-169-254.nip.io/",
    "https://a9fea9fe.nip.io/",
    "https://login.169.254.169.254.example.org/",
    "https://fd00-ec2--254.sslip.io/",
]
LOOPBACK = [
    "https://127.0.0.1:8443/",
    "https://localhost:6443/",
    "https://localhost.:6443/",
    "https://a.localhost/",
    "https://127.1/",
    "https://2130706433/",
    "https://[::1]:2375/",
    "https://[::ffff:127.0.0.1]/",
    "https://127.0.0.1.nip.io/",
    "https://7f000001.nip.io/",
    "https://app.localtest.me/",
    "https://--1.sslip.io/",
]
PRIVATE = [
    "https://10.0.0.1/",
    "https://192.168.1.1/",
    "https://172.16.0.1/",
    "https://3232235777/",
    "https://100.64.0.1/",
    "https://[fd12::1]/",
    "https://10-0-0-1.sslip.io/",
    "https://192.168.1.1.nip.io./",
    "https://evil/",
    "https://login.lan/",
    "https://idp.corp/",
]
NONSENSE = [
    "file:///etc/passwd",
    "javascript:alert(1)",
    "data:text/html,x",
    "ftp://x.example/",
    "https://user:pw@other.example/",
    "https:other.example",
    "https:///etc",
    "https://0.0.0.0:8443/",
    "https://[::]/",
    "http://other.example/",
]


@pytest.mark.parametrize("address", METADATA + NONSENSE)
@pytest.mark.parametrize("own", [REMOTE, HERE, LAN])
def test_a_login_never_contacts(address: str, own: str) -> None:
    with pytest.raises(PermissionError):
        check(address, own)


@pytest.mark.parametrize("address", LOOPBACK + PRIVATE)
def test_a_remote_server_cannot_send_a_login_to(address: str) -> None:
    with pytest.raises(PermissionError):
        check(address, REMOTE)


@pytest.mark.parametrize("address", LOOPBACK)
def test_this_machine_for_a_server_on_it_only(address: str) -> None:
    check(address, HERE)
    with pytest.raises(PermissionError):
        check(address, LAN)


@pytest.mark.parametrize("address", PRIVATE)
def test_this_network_for_a_server_in_it(address: str) -> None:
    check(address, LAN)
    check(address, HERE)


@pytest.mark.parametrize("own", [REMOTE, HERE, LAN])
def test_public_and_own_addresses_are_fine(own: str) -> None:
    check("https://login.example.org/authorize", own)
    check("https://8.8.8.8/", own)
    check("https://8-8-8-8.sslip.io/", own)
    check("https://v1.2.3.example.org/", own)
    check("https://2026-11-23.example.org/", own)
    check(f"{own}/token", own)


async def test_a_name_is_judged_by_its_meaning() -> None:
    with pytest.raises(PermissionError):
        await check_resolved("https://localhost/", REMOTE)
    await check_resolved("https://no-such-host.invalid/", REMOTE)


def test_names_of_the_local_network_for_a_server_with_such_a_name() -> None:
    check("https://login.lan/", "http://mcp.lan:9000/mcp")
    check("https://login/", "http://mcp/mcp")


async def test_the_page_for_the_browser_is_judged_by_what_its_name_resolves_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first address of a login goes to the user's browser, not to our client."""

    async def resolved(host: str, port: object) -> list[tuple[object, ...]]:
        return [(None, None, None, "", ("192.168.1.1", 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolved)
    shown: list[str] = []

    async def show(address: str) -> None:
        shown.append(address)

    async with Callback() as callback:
        provider = _provider(LoginRequest(server="shop", url=REMOTE), callback, show)
        redirect = provider.context.redirect_handler
        assert redirect is not None
        with pytest.raises(PermissionError):
            await redirect("https://login.example.org/authorize?state=s")
    assert shown == []
