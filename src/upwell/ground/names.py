"""What a server may be called."""

from upwell.ground.errors import UsageError

MAX_SERVER_NAME_CHARS = 32
OWN_SERVER = "upwell"
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def check_server_name(name: str) -> None:
    """Names become prefixes of tool names, so they are narrow.

    Raises:
        UsageError: empty, too long, ours, or with characters other than letters, digits, _ and -.
    """
    if not name or len(name) > MAX_SERVER_NAME_CHARS:
        fault = f"must have 1 to {MAX_SERVER_NAME_CHARS} characters"
    elif not set(name) <= _ALLOWED or "__" in name or name.strip("_-") != name:
        fault = "may only have letters, digits, and single _ or - between them"
    elif name.lower() == OWN_SERVER:
        fault = "is taken by upwell's own tools"
    else:
        return
    raise UsageError(f"server name {name[:60]!r} {fault}", hint="choose another name")
