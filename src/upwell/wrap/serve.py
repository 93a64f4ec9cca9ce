"""The command `upwell serve --tools`: passes each message of an agent on to the daemon, which
answers for upwell's own tools.

The daemon may end and start again in between, because it keeps no state for the connection. A
message that a daemon has read is not sent again.
"""

import _signal
import _socket
import os
import time
from _json import encode_basestring_ascii as quoted

from upwell.hook.client import MAX_SENT_BYTES, exchanged
from upwell.hook.place import DaemonPlace, is_private, socket_inode
from upwell.wrap.asking import NEW, TOOLS, description, identity, start_daemon
from upwell.wrap.messages import member, outline, parsed

STARTING_SECONDS = 15.0
START_AGAIN_SECONDS = 2.0
ANSWER_SECONDS = 60.0
LOOK_SECONDS = 0.02
READ_BYTES = 262_144


class ToolsConnection:
    """The agent's connection to upwell's own tools. `place` is that of the daemon, and `name` is
    `OF_PLUGIN` or ""."""

    def __init__(self, place: DaemonPlace, name: str = "") -> None:
        self._place = place
        self._identity = identity("tools", name)
        self._client = ""

    def run(self) -> int:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
        # Ended processes that started a daemon are not waited for.
        _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
        unread = b""
        while chunk := os.read(0, READ_BYTES):
            *lines, unread = (unread + chunk).split(b"\n")
            for line in filter(None, map(bytes.strip, lines)):
                if not _write(self._answer(line)):
                    return 0
        return 0

    def _answer(self, line: bytes) -> bytes:
        if b"clientInfo" in line:
            message = parsed(line.decode(errors="replace"))
            self._client = member(message, "params", "clientInfo", "name") or self._client
        body = description(self._identity, self._client) + b"\n" + line
        if len(body) > MAX_SENT_BYTES:
            return _refusal(line, "the message is too long")
        answer = self._asked(body)
        if answer is None:
            return _refusal(line, "upwell's daemon did not answer; `upwell doctor` may say why")
        return answer

    def _asked(self, body: bytes) -> bytes | None:
        """The daemon's answer. Without a daemon, one is started. One of an older version ends when
        it is asked."""
        words = (TOOLS, "message", f"{ANSWER_SECONDS * 1000:.0f}", str(os.getppid()))
        deadline = time.monotonic() + STARTING_SECONDS
        while (peer := self._connected(deadline)) is not None:
            try:
                answer = exchanged(peer, words, body)
            except OSError:
                return None
            finally:
                peer.close()
            if answer is None or answer.startswith(NEW):
                return answer and answer[len(NEW) :]
            time.sleep(LOOK_SECONDS)
        return None

    def _connected(self, deadline: float) -> _socket.socket | None:
        start_at = 0.0
        while (now := time.monotonic()) < deadline:
            if is_private(self._place.folder) and socket_inode(self._place.socket):
                peer = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
                peer.settimeout(ANSWER_SECONDS)
                try:
                    peer.connect(self._place.socket)
                    return peer
                except OSError:
                    peer.close()
            if now >= start_at:
                start_at = now + START_AGAIN_SECONDS
                start_daemon(self._place)
            time.sleep(LOOK_SECONDS)
        return None


def _refusal(line: bytes, reason: str) -> bytes:
    request = outline(line, line).get("id", "")
    error = f'{{"code":-32603,"message":{quoted(reason)}}}'
    return f'{{"jsonrpc":"2.0","id":{request},"error":{error}}}\n'.encode() if request else b""


def _write(answer: bytes) -> bool:
    try:
        while answer:
            answer = answer[os.write(1, answer) :]
    except OSError:
        return False
    return True
