"""The agent hosts whose events are understood, by name. One file each."""

from collections.abc import Mapping

from upwell.hook.events import claude, codex, copilot, cursor, gemini, opencode, vscode
from upwell.hook.events.base import Event, EventKind, Host

__all__ = ["HOSTS", "Event", "EventKind", "Host"]

HOSTS: Mapping[str, Host] = {
    host.name: host
    for host in (
        claude.HOST,
        codex.HOST,
        gemini.HOST,
        cursor.HOST,
        copilot.HOST,
        vscode.HOST,
        opencode.HOST,
    )
}
