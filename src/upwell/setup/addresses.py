"""Checks the addresses that a login may contact. The MCP server supplies them, so they could point
into the local network. What counts is the host that the system would connect to, however it is
written: `2852039166`, `0xa9fea9fe`, `[::ffff:169.254.169.254]` and `169-254-169-254.nip.io` are the
same host.
"""

import asyncio
import ipaddress
import re
import socket
from urllib.parse import urlsplit

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address

METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "instance-data"})
METADATA_ADDRESSES = frozenset(
    map(ipaddress.ip_address, ("100.100.100.200", "192.0.0.192", "fd00:ec2::254"))
)
"""Cloud metadata services outside the link-local range."""
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
RESOLVE_SECONDS = 5.0
LOCAL_ENDS = (".local", ".lan", ".internal", ".intranet", ".corp", ".home", ".home.arpa")
"""Endings of names that only a local network resolves. Names without a dot are local as well."""
MIRRORS = (".nip.io", ".sslip.io", ".xip.io", ".traefik.me", ".local.gd")
"""Domains that resolve `10-0-0-1.DOMAIN` to 10.0.0.1."""
LOOPBACK_DOMAINS = (".localhost", ".localtest.me", ".lvh.me", ".vcap.me", ".lacolhost.com")
_QUAD = re.compile(r"(?<![0-9])(?:[0-9]{1,3}[.-]){3}[0-9]{1,3}(?![0-9])")
_HEX_QUAD = re.compile(r"(?<![0-9a-z])[0-9a-f]{8}(?![0-9a-z])")


def check(address: str, url: str) -> None:
    """Check an address that the server at `url` supplied.

    - It must use HTTPS. HTTP is allowed only if the address is at the server's own origin, or if
      both the address and the server are on this machine.
    - A public server may not point to a private address.
    - Only a server on this machine may point to this machine.
    - Nothing may point to a cloud's metadata service.

    Raises:
        PermissionError: the address is not allowed.
    """
    parts, own = urlsplit(address), urlsplit(url)
    host, own_host = _name(parts.hostname), _name(own.hostname)
    is_own = parts[:2] == own[:2]
    near = _is_loopback(host) and _is_loopback(own_host)
    may_be_plain = parts.scheme == "http" and (is_own or near)
    is_allowed = (parts.scheme == "https" or may_be_plain) and host and "@" not in parts.netloc
    if not is_allowed or _is_metadata(host) or not (is_own or _is_as_near(host, own_host)):
        raise PermissionError(
            f"the server points to {parts.scheme}://{host[:100]}, which is not safe to contact"
        )


async def check_resolved(address: str, url: str) -> None:
    """Check an address and, unless it is at the origin of `url`, all IP addresses that its host
    resolves to now.

    Raises:
        PermissionError: one of them is not allowed.
    """
    check(address, url)
    parts = urlsplit(address)
    host = _name(parts.hostname)
    if ip_of(host) or parts[:2] == urlsplit(url)[:2]:
        return
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            addresses = await asyncio.get_running_loop().getaddrinfo(host, None)
    except (OSError, TimeoutError):
        # A host that cannot be resolved cannot be contacted either.
        return
    for ip in {str(entry[4][0]).partition("%")[0] for entry in addresses}:
        check(f"https://[{ip}]/" if ":" in ip else f"https://{ip}/", url)


def ip_of(host: str) -> Ip | None:
    """`host` as an IP address, however it is written; None for a host name. An IPv4 address inside
    an IPv6 address is returned as IPv4."""
    try:
        ip: Ip = ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return None
    if isinstance(ip, ipaddress.IPv6Address):
        if ip in _TRANSLATED:
            return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        return ip.ipv4_mapped or ip.sixtofour or ip
    return ip


def _meant(host: str) -> Ip | None:
    """The IP address in `host`, which may be part of a name (`10-0-0-1.nip.io`); None for other
    names."""
    if ip := ip_of(host):
        return ip
    spelt = _QUAD.search(host)
    if spelt:
        return ip_of(spelt.group().replace("-", "."))
    if host.endswith(MIRRORS):
        name = next(host.removesuffix(end) for end in MIRRORS if host.endswith(end))
        if spelt := _HEX_QUAD.search(name):
            return ipaddress.IPv4Address(int(spelt.group(), 16))
        return ip_of(name.rpartition(".")[2].replace("-", ":"))
    return None


def _is_local_name(host: str) -> bool:
    return ip_of(host) is None and ("." not in host or host.endswith(LOCAL_ENDS))


def _name(host: str | None) -> str:
    return (host or "").lower().rstrip(".").partition("%")[0]


def _is_loopback(host: str) -> bool:
    ip = _meant(host)
    return ip.is_loopback if ip else f".{host}".endswith(LOOPBACK_DOMAINS)


def _is_metadata(host: str) -> bool:
    ip = _meant(host)
    return ip.is_link_local or ip in METADATA_ADDRESSES if ip else host in METADATA_NAMES


def _is_as_near(host: str, own_host: str) -> bool:
    """True if a server at `own_host` may send a login to `host`. This machine is allowed only for a
    server on this machine, and a private host only for a server that is private or on this
    machine."""
    if _is_loopback(host):
        return _is_loopback(own_host)
    ip, own = _meant(host), _meant(own_host)
    is_own_near = _is_loopback(own_host) or bool(own and own.is_private)
    if ip is None:
        return is_own_near or _is_local_name(own_host) or not _is_local_name(host)
    return ip.is_global or (not ip.is_unspecified and is_own_near)
