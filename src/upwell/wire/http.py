"""Connect to an MCP server over streamable HTTP, or over the older HTTP with SSE.

Messages stay raw bytes. Bodies and events become lines, like the output of a child process. Each
message that we send is one POST. Answers and the messages on the server's own stream arrive in one
queue. Redirects are followed within the server's origin only, cookies are not kept, and a client's
headers are not passed on.
"""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from msgspec import Struct, field

from upwell.ground.background import BackgroundTasks
from upwell.ground.secrets.mask import masked_address
from upwell.ground.secrets.redact import redacted_start
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Reply
from upwell.wire.lines import MAX_LINE_BYTES, Line, LineQueue, SseEvent, read_events
from upwell.wire.logins import REQUIREMENT, LoginNeeded
from upwell.wire.mirrors import Mirrors
from upwell.wire.peer import INTERNAL_ERROR, answer_line, error_body, own_id, read_message
from upwell.wire.rawjson import NotJson, RawObject

if TYPE_CHECKING:
    import httpx2


EVENTS, JSON = "text/event-stream", "application/json"
CONNECT_SECONDS = 10.0
RETRY_SECONDS = 1.0
MAX_RETRIES = 5
MAX_WAIT_SECONDS = 30.0
ACCEPTED = "gzip, deflate"
"""The encodings that we request."""
PIECE_BYTES = 65_536
_EITHER_HEADER = 32 + zlib.MAX_WBITS
_IDENTITY = ("", "identity")
_SESSION = "mcp-session-id"
_DROPPED = "the server has dropped our session"
_REDIRECTS = (301, 302, 307, 308)
MAX_REDIRECTS = 5
_SAYS_UNKNOWN = re.compile(rb"session|not initiali[sz]ed", re.IGNORECASE)
_VERSION = re.compile(rb'"protocolVersion"\s*:\s*"([0-9-]{10})"')


async def pieces_of(response: "httpx2.Response") -> AsyncIterator[bytes]:
    """Yield the decoded body of a response. A compressed body comes in pieces of at most
    `PIECE_BYTES`, and other tasks get to run after each piece. A kilobyte may expand to a megabyte,
    so decompressing a whole body at once could block the process, and could exhaust the memory
    before a size limit is checked. Raises ValueError if the body is damaged, or its encoding was
    not requested."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding in _IDENTITY:
        async for chunk in response.aiter_raw():
            yield chunk
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ValueError(f"content-encoding {encoding[:60]!r} was not requested")
    decoder = zlib.decompressobj(_EITHER_HEADER)
    async for chunk in response.aiter_raw():
        data = chunk
        while data or not decoder.eof:
            try:
                piece = decoder.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                raise ValueError(f"the compressed body is damaged: {error}") from error
            data = decoder.unconsumed_tail
            if piece:
                yield piece
                await asyncio.sleep(0)
            if decoder.eof or (not data and len(piece) < PIECE_BYTES):
                break


async def body_of(response: "httpx2.Response", max_bytes: int, identity: bytes) -> Line:
    """Reading stops once the body exceeds `max_bytes`."""
    parts: list[bytes] = []
    size = 0
    async for chunk in pieces_of(response):
        size += len(chunk)
        if size > max_bytes:
            return too_large(identity, size)
        parts.append(chunk)
    return Line(b"".join(parts))


def too_large(identity: bytes, size: int) -> Line:
    return Line(b'{"id":%b' % identity, oversize=size)


def is_answer(event: SseEvent, identity: bytes) -> bool:
    try:
        message = read_message(event.data)
    except NotJson:
        return False
    return own_id(message.id or b"") == identity and message.method is None


def unanswered(identity: bytes, reason: str, *, not_run: bool = False) -> Line:
    return Line(b"", lost=identity, reason=reason, not_run=not_run)


def says_session_is_unknown(status: int, body: bytes, identity: bytes) -> bool:
    """Return whether a response to a request in our session says that the session is unknown.
    Several servers respond with HTTP 400 or 503, although the specification requires HTTP 404. An
    error with the request's own id is an answer to it."""
    if status not in (400, 503) or not _SAYS_UNKNOWN.search(body[:PIECE_BYTES]):
        return status == 404
    try:
        return own_id(RawObject.parse(body).get("id") or b"") != identity
    except NotJson:
        return True


def refused(identity: bytes, status: int, body: bytes, requirement: str = "") -> bytes:
    """Return the line that answers a request after an HTTP error. If the user has to do something
    first, the line says what. Otherwise, it contains the server's JSON-RPC error, or the HTTP
    status if there is none.
    """
    if requirement:
        return answer_line(identity, Reply(error=error_body(INTERNAL_ERROR, requirement)))
    try:
        error = RawObject.parse(body).get("error")
        if error is not None and "code" in RawObject.parse(error):
            return answer_line(identity, Reply(error=error))
    except NotJson:
        LOG.debug("HTTP %d without a JSON-RPC error", status)
    error = error_body(INTERNAL_ERROR, f"the server answered HTTP {status}: {_shown(body)}")
    return answer_line(identity, Reply(error=error))


def _shown(body: bytes) -> str:
    return redacted_start(" ".join(body.decode(errors="replace").split()), 200)


class Address(Struct, frozen=True, kw_only=True):
    """A server's URL and the headers for authentication. `sse` selects the older transport
    (2024-11-05)."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    sse: bool = False

    @property
    def shown(self) -> str:
        """The URL without credentials, for logs and errors."""
        return masked_address(self.url)


class _Redirected(ValueError):
    """The server redirects to an address that is not followed."""


class _Progress(Struct):
    last_event: str = ""
    wait_seconds: float = RETRY_SECONDS
    answered: bool = False


class _Post(Struct, frozen=True):
    """`modern`: a request of MCP 2026-07-28, which belongs to no session."""

    task: "asyncio.Task[None]"
    modern: bool


class HttpLink:
    """A connection to a server. `sink` POSTs lines to the server, and `lines()` yields its
    messages. `lines()` ends when the server is unreachable, requires a login or has dropped our
    session, or when the stream of the older transport ends. After that, a new link with a new
    handshake is needed."""

    def __init__(
        self, address: Address, client: "httpx2.AsyncClient", max_bytes: int = MAX_LINE_BYTES
    ) -> None:
        self._address = address
        self._client = client
        self._max_bytes = max_bytes
        self._url = "" if address.sse else address.url
        self._url_known = asyncio.Event()
        self._session: dict[str, str] = {}
        self._inbox = LineQueue()
        self._tasks = BackgroundTasks(address.shown)
        self._posts: dict[bytes, _Post] = {}
        self._reason = ""
        """Why the link ended, or "" while it is open."""
        self.locked_out = False
        self.mirrors = Mirrors(address.shown)
        if address.sse:
            self._tasks.start(self._sse())

    @property
    def sink(self) -> "HttpLink":
        return self

    def lines(self) -> AsyncIterator[Line]:
        return self._inbox.lines()

    async def write(self, line: bytes) -> None:
        """Send one message: a request in the background, any other message before this method
        returns. A modern request is cancelled by closing its connection. Raises ConnectionError if
        the link has ended."""
        if self._reason:
            raise ConnectionResetError(self._reason)
        message = RawObject.parse(line)
        identity, method = message.get("id"), message.value("method")
        if method == "notifications/cancelled":
            params = RawObject.parse(message.get("params") or b"{}")
            post = self._posts.get(params.get("requestId") or b"")
            if post is not None:
                post.task.cancel()
                # The closed connection tells the server of a modern request, so no message does.
                if post.modern:
                    return
        if identity is None or method is None:
            await self._post(line, message, None, {})
            if method == "notifications/initialized" and not self._address.sse:
                self._tasks.start(self._listen())
            return
        modern = self.mirrors.headers_of(message)
        task = self._tasks.start(self._post(line, message, identity, modern))
        self._posts[identity] = _Post(task, modern=bool(modern))
        task.add_done_callback(lambda _: self._posts.pop(identity, None))

    async def aclose(self) -> None:
        """Cancel every request and end the session."""
        await self._tasks.aclose()
        if self._session.get(_SESSION) and not self._reason:
            try:
                async with asyncio.timeout(1.0):
                    await self._client.delete(self._url, headers=self._session)
            except Exception as error:
                LOG.debug("a session could not be ended: %s", error)
        self._end("closed")
        await self._client.aclose()

    async def exit_reason(self) -> str:
        return self._reason or "its stream ended"

    async def stop(self, grace_seconds: float = 2.0) -> None:
        await self.aclose()

    async def _post(
        self, line: bytes, message: RawObject, identity: bytes | None, modern: Mapping[str, str]
    ) -> None:
        import httpx2

        if self._address.sse:
            await self._url_known.wait()
        headers = {
            "content-type": JSON,
            "accept": f"{JSON}, {EVENTS}",
            **(modern or self._session),
        }
        reason = "it broke off"
        try:
            async with self._sent("POST", headers, line) as response:
                reason = await self._take(response, message, identity)
        except (
            httpx2.ConnectError,
            httpx2.ConnectTimeout,
            httpx2.InvalidURL,
            _Redirected,
            LoginNeeded,
        ) as error:
            unreachable = _unreachable(self._address.shown, error)
            self._lose(identity, unreachable, locked_out=isinstance(error, LoginNeeded))
            if identity is None:
                raise ConnectionResetError(self._reason) from error
        except (httpx2.HTTPError, httpx2.StreamError, ValueError) as error:
            reason = f"{self._address.shown} broke off: {_description(error)}"
            LOG.info("%s", reason)
        finally:
            if identity is not None and reason and not self._reason:
                self._inbox.add(unanswered(identity, reason))

    async def _take(
        self, response: "httpx2.Response", message: RawObject, identity: bytes | None
    ) -> str:
        """Pass on the response to a POST. Returns the reason to report if the response contained no
        answer, or "" if it need not contain one."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        status = response.status_code
        opens = message.value("method") == "initialize"
        has_session = _SESSION in response.request.headers
        if status == 401 and not self._session:
            self._end("it refuses our credentials (HTTP 401)", locked_out=True)
        elif identity is None:
            if status == 404 and has_session:
                self._end(_DROPPED)
            return ""
        elif status >= 300:
            body = (await body_of(response, self._max_bytes, identity)).data
            if has_session and says_session_is_unknown(status, body, identity):
                self._lose(identity, _DROPPED)
            elif status == 503 and (has_session or opens):
                # A proxy answers so while the server restarts, and perhaps for this session only.
                return f"{self._address.shown} is not available (HTTP 503: {_shown(body)})"
            else:
                requirement = response.extensions.get(REQUIREMENT, "")
                self._inbox.add(Line(refused(identity, status, body, requirement)))
        elif kind == EVENTS:
            await self._events(response, identity, opens_session=opens)
        elif self._address.sse:
            return ""
        else:
            answer = await body_of(response, self._max_bytes, identity)
            if opens:
                _note_session(self._session, response, answer.data)
            await self._inbox.put(answer)
        return f"the server answered HTTP {status} and {kind or 'nothing'}, without a reply"

    @asynccontextmanager
    async def _sent(
        self, method: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> "AsyncIterator[httpx2.Response]":
        """Send a request to `self._url` and open the response. A redirect within the server's
        origin is followed with the same method, and changes `self._url`. Any other target, and too
        many redirects, are `_Redirected`."""
        for _ in range(MAX_REDIRECTS):
            stream = self._client.stream(method, self._url, headers=headers, content=content)
            async with stream as response:
                if response.status_code not in _REDIRECTS:
                    yield response
                    return
                target = urljoin(self._url, response.headers.get("location", ""))
            if _origin(target) != _origin(self._url):
                shown = masked_address(target)[:200]
                raise _Redirected(f"it redirects to {shown}: set this as its url")
            self._url = target
        raise _Redirected(f"it redirects more than {MAX_REDIRECTS} times")

    async def _events(
        self, response: "httpx2.Response", identity: bytes, *, opens_session: bool
    ) -> None:
        progress = await self._read(response, identity, opens_session=opens_session)
        for _ in range(MAX_RETRIES):
            if progress.answered or not progress.last_event:
                break
            await asyncio.sleep(progress.wait_seconds)
            headers = {"accept": EVENTS, "last-event-id": progress.last_event, **self._session}
            async with self._sent("GET", headers) as resumed:
                if resumed.status_code != 200:
                    break
                progress = await self._read(resumed, identity)

    async def _read(
        self, response: "httpx2.Response", identity: bytes, *, opens_session: bool = False
    ) -> "_Progress":
        progress = _Progress()
        async for event in read_events(pieces_of(response), self._max_bytes):
            progress.last_event = event.id or progress.last_event
            if event.retry_ms is not None:
                progress.wait_seconds = min(event.retry_ms / 1000, MAX_WAIT_SECONDS)
            if event.oversize:
                progress.answered = True
                await self._inbox.put(too_large(identity, event.oversize))
            elif event.data:
                await self._inbox.put(Line(event.data))
                if opens_session:
                    _note_session(self._session, response, event.data)
                progress.answered = progress.answered or is_answer(event, identity)
        return progress

    async def _listen(self) -> None:
        import httpx2

        headers = {"accept": EVENTS, **self._session}
        while not self._reason:
            try:
                async with self._sent("GET", headers) as response:
                    if response.status_code != 200:
                        return
                    async for event in read_events(pieces_of(response), self._max_bytes):
                        if event.id:
                            headers["last-event-id"] = event.id
                        if event.oversize:
                            LOG.warning("%s: a message is too large", self._address.shown)
                        elif event.data:
                            await self._inbox.put(Line(event.data))
            except (httpx2.HTTPError, ValueError, LoginNeeded) as error:
                LOG.debug("%s: its stream ended: %s", self._address.shown, _description(error))
            await asyncio.sleep(RETRY_SECONDS)

    async def _sse(self) -> None:
        """Read the single stream of the older transport. It delivers the URL to POST to, and then
        all messages.
        """
        import httpx2

        headers = {"accept": EVENTS}
        reason, locked_out = "its stream ended", False
        self._url = self._address.url
        try:
            async with self._sent("GET", headers) as response:
                response.raise_for_status()
                async for event in read_events(pieces_of(response), self._max_bytes):
                    if event.name == "endpoint":
                        target = urljoin(self._url, event.data.decode().strip())
                        if _origin(target) != _origin(self._url):
                            shown = target[:200]
                            raise ValueError(
                                f"it gives a URL on another host for messages: {shown}"
                            )
                        self._url = target
                        self._url_known.set()
                    elif event.data:
                        await self._inbox.put(Line(event.data, oversize=event.oversize))
        except (httpx2.HTTPError, ValueError, LoginNeeded) as error:
            reason = _unreachable(self._address.shown, error)
            locked_out = isinstance(error, LoginNeeded)
        self._end(reason, locked_out=locked_out)
        # Wake the requests that wait for the URL, so that they fail instead of waiting forever.
        self._url_known.set()

    def _lose(self, identity: bytes | None, reason: str, *, locked_out: bool = False) -> None:
        """End the link because of a request that the server has not run."""
        if identity is not None and not self._reason and not locked_out:
            self._inbox.add(unanswered(identity, reason, not_run=True))
        self._end(reason, locked_out=locked_out)

    def _end(self, reason: str, *, locked_out: bool = False) -> None:
        if not self._reason:
            self._reason, self.locked_out = reason, locked_out
            self._inbox.end()


def open_link(
    address: Address, max_bytes: int = MAX_LINE_BYTES, auth: "httpx2.Auth | None" = None
) -> HttpLink:
    """Return a link to a server. With `sse`, it connects at once. Otherwise, nothing is sent yet.
    Raises ValueError if the URL is not an http or https address."""
    import httpx2

    parts = urlsplit(address.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{address.shown!r} is not an http or https address")
    client = httpx2.AsyncClient(
        headers={"accept-encoding": ACCEPTED, **address.headers},
        auth=auth,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
        follow_redirects=False,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=32),
    )
    return HttpLink(address, client, max_bytes)


def _unreachable(shown: str, error: Exception) -> str:
    if isinstance(error, LoginNeeded):
        return str(error)
    if isinstance(error, _Redirected):
        return f"{shown} cannot be used: {error}"
    return f"{shown} cannot be reached: {_description(error)}"


def _description(error: Exception) -> str:
    """Describe an error without credentials. The text of an HTTP status error is not used, because
    it contains the whole URL.
    """
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP {response.status_code}"
    return str(error) or type(error).__name__


def _note_session(session: dict[str, str], response: "httpx2.Response", body: bytes) -> None:
    if session or not (version := _VERSION.search(body[:65536])):
        return
    session["mcp-protocol-version"] = version.group(1).decode()
    if name := response.headers.get(_SESSION):
        session[_SESSION] = name


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
