"""An MCP server that is reached over HTTP: streamable HTTP, or the older HTTP with SSE.

Messages stay the bytes that came: bodies and events are handed on as lines, like those of a child.
One POST for each message; what it answers, and what the server says on a stream of its own, arrive
in one queue. Redirects are not followed, and nothing but the configured headers is sent along.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from upwell.ground.trace import LOG
from upwell.ground.veil import veiled_address
from upwell.wire.inbox import Inbox
from upwell.wire.lines import MAX_LINE_BYTES, Line
from upwell.wire.logins import WANTS, LoginNeeded
from upwell.wire.mirrors import Mirrors
from upwell.wire.rawjson import RawObject
from upwell.wire.replies import body_of, is_answer, refused, too_large, unanswered
from upwell.wire.sse import read_events

if TYPE_CHECKING:
    import httpx2

EVENTS, JSON = "text/event-stream", "application/json"
CONNECT_SECONDS = 10.0
RETRY_SECONDS = 1.0
MOST_RETRIES = 5
MOST_WAIT_SECONDS = 30.0
_SESSION = "mcp-session-id"
_VERSION = re.compile(rb'"protocolVersion"\s*:\s*"([0-9-]{10})"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server is, and the headers that let us in. `sse`: the transport of 2024-11-05."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    sse: bool = False

    @property
    def shown(self) -> str:
        """The address without what lets somebody in."""
        return veiled_address(self.url)


@dataclass(slots=True)
class _Read:
    """How far a stream was read: the last id, how long to wait, and whether the answer came."""

    last: str = ""
    wait_seconds: float = RETRY_SECONDS
    answered: bool = False


@dataclass(frozen=True, slots=True)
class _Post:
    """A request under way; `modern` ones stand for themselves and have no session."""

    task: "asyncio.Task[None]"
    modern: bool


class HttpLink:
    """A sink whose lines are POSTed, and the lines that come back. `lines` ends when the server is
    gone or has forgotten our session: then it has to be greeted anew."""

    def __init__(
        self, address: Address, client: "httpx2.AsyncClient", max_bytes: int = MAX_LINE_BYTES
    ) -> None:
        self._address = address
        self._client = client
        self._max_bytes = max_bytes
        self._url = "" if address.sse else address.url
        self._found = asyncio.Event()
        self._session: dict[str, str] = {}
        self._inbox = Inbox()
        self._posts: dict[bytes, _Post] = {}
        self._background: list[asyncio.Task[None]] = []
        self._why = ""
        self.locked_out = False
        self.mirrors = Mirrors(address.shown)
        if address.sse:
            self._background.append(asyncio.create_task(self._sse()))

    @property
    def sink(self) -> "HttpLink":
        return self

    def lines(self) -> AsyncIterator[Line]:
        """Messages of the server until it is gone."""
        return self._inbox.lines()

    async def write(self, line: bytes) -> None:
        """Send one message. Requests are answered in the background, anything else is sent first.

        Raises:
            ConnectionError: the server is gone.
        """
        if self._why:
            raise ConnectionResetError(self._why)
        message = RawObject.parse(line)
        identity, method = message.get("id"), message.value("method")
        if method == "notifications/cancelled" and _withdrawn(self._posts, message):
            return
        if identity is None or method is None:
            await self._post(line, message, None, {})
            if method == "notifications/initialized" and not self._address.sse:
                self._background.append(asyncio.create_task(self._listen()))
            return
        modern = self.mirrors.headers_of(message)
        task = asyncio.create_task(self._post(line, message, identity, modern))
        self._posts[identity] = _Post(task, modern=bool(modern))
        task.add_done_callback(lambda _: self._posts.pop(identity, None))

    async def aclose(self) -> None:
        """End the session and everything under way."""
        for task in [*(post.task for post in self._posts.values()), *self._background]:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._session.get(_SESSION) and not self._why:
            try:
                async with asyncio.timeout(1.0):
                    await self._client.delete(self._url, headers=self._session)
            except Exception as error:
                LOG.debug("a session could not be ended: %s", error)
        self._gone("closed")
        await self._client.aclose()

    async def obituary(self, patience_seconds: float = 0.5) -> str:
        """Why it is gone, for an error message."""
        return self._why or "its stream ended"

    async def stop(self, grace_seconds: float = 2.0) -> None:
        await self.aclose()

    async def _post(
        self, line: bytes, message: RawObject, identity: bytes | None, modern: Mapping[str, str]
    ) -> None:
        """Send one message, with our session's headers or those of a `modern` request, which has
        no session."""
        import httpx2

        if not self._url:
            await self._found.wait()
        headers = {
            "content-type": JSON,
            "accept": f"{JSON}, {EVENTS}",
            **(modern or self._session),
        }
        why = "it broke off"
        try:
            stream = self._client.stream("POST", self._url, content=line, headers=headers)
            async with stream as response:
                why = await self._take(response, message, identity)
        except (
            httpx2.ConnectError,
            httpx2.ConnectTimeout,
            httpx2.InvalidURL,
            LoginNeeded,
        ) as error:
            gone = _why(self._address.shown, error)
            self._gone(gone, locked_out=isinstance(error, LoginNeeded))
            if identity is None:
                raise ConnectionResetError(self._why) from error
        except (httpx2.HTTPError, httpx2.StreamError, ValueError) as error:
            why = f"{self._address.shown} broke off: {_told(error)}"
            LOG.info("%s", why)
        finally:
            if identity is not None and why and not self._why:
                self._inbox.add(unanswered(identity, why))

    async def _take(
        self, response: "httpx2.Response", message: RawObject, identity: bytes | None
    ) -> str:
        """Hand on what a POST was answered with. Says what to tell whoever waits if that was no
        answer; "" where it comes on another stream."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        status = response.status_code
        greets = message.value("method") == "initialize"
        if status == 401 and not self._session:
            self._gone("it does not let us in (HTTP 401)", locked_out=True)
        elif status == 404 and _SESSION in response.request.headers:
            self._gone("the server has forgotten our session")
        elif identity is None:
            return ""
        elif status >= 300:
            body = await body_of(response, self._max_bytes, identity)
            wants = response.extensions.get(WANTS, "")
            self._inbox.add(Line(refused(identity, status, body.data, wants)))
        elif kind == EVENTS:
            await self._events(response, identity, greets=greets)
        elif self._address.sse:
            return ""
        else:
            body = await body_of(response, self._max_bytes, identity)
            if greets:
                _greeted(self._session, response, body.data)
            await self._inbox.put(body)
        return f"the server answered HTTP {status} and {kind or 'nothing'}, without a reply"

    async def _events(self, response: "httpx2.Response", identity: bytes, *, greets: bool) -> None:
        """Messages of a stream; when it ends without the answer it is taken up where it was."""
        read = await self._read(response, identity, greets=greets)
        for _ in range(MOST_RETRIES):
            if read.answered or not read.last:
                break
            await asyncio.sleep(read.wait_seconds)
            headers = {"accept": EVENTS, "last-event-id": read.last, **self._session}
            async with self._client.stream("GET", self._url, headers=headers) as again:
                if again.status_code != 200:
                    break
                read = await self._read(again, identity)

    async def _read(
        self, response: "httpx2.Response", identity: bytes, *, greets: bool = False
    ) -> "_Read":
        """Hand on the messages of a stream until it ends."""
        read = _Read()
        async for event in read_events(response.aiter_bytes(), self._max_bytes):
            read.last = event.id or read.last
            if event.retry_ms is not None:
                read.wait_seconds = min(event.retry_ms / 1000, MOST_WAIT_SECONDS)
            if event.oversize:
                read.answered = True
                await self._inbox.put(too_large(identity, event.oversize))
            elif event.data:
                await self._inbox.put(Line(event.data))
                if greets:
                    _greeted(self._session, response, event.data)
                read.answered = read.answered or is_answer(event, identity)
        return read

    async def _listen(self) -> None:
        """The stream on which the server speaks of its own accord, where it has one."""
        import httpx2

        headers = {"accept": EVENTS, **self._session}
        while not self._why:
            try:
                async with self._client.stream("GET", self._url, headers=headers) as response:
                    if response.status_code != 200:
                        return
                    async for event in read_events(response.aiter_bytes(), self._max_bytes):
                        if event.id:
                            headers["last-event-id"] = event.id
                        if event.oversize:
                            LOG.warning("%s: a notice is too large", self._address.shown)
                        elif event.data:
                            await self._inbox.put(Line(event.data))
            except (httpx2.HTTPError, LoginNeeded) as error:
                LOG.debug("%s: its stream ended: %s", self._address.shown, _told(error))
            await asyncio.sleep(RETRY_SECONDS)

    async def _sse(self) -> None:
        """The one stream of the older transport: first where to POST to, then all messages."""
        import httpx2

        headers = {"accept": EVENTS}
        why, locked_out = "its stream ended", False
        try:
            stream = self._client.stream("GET", self._address.url, headers=headers)
            async with stream as response:
                response.raise_for_status()
                async for event in read_events(response.aiter_bytes(), self._max_bytes):
                    if event.name == "endpoint":
                        self._url = _same_origin(self._address.url, event.data.decode())
                        self._found.set()
                    elif event.data:
                        await self._inbox.put(Line(event.data, oversize=event.oversize))
        except (httpx2.HTTPError, ValueError, LoginNeeded) as error:
            why, locked_out = _why(self._address.shown, error), isinstance(error, LoginNeeded)
        self._gone(why, locked_out=locked_out)
        self._found.set()

    def _gone(self, why: str, *, locked_out: bool = False) -> None:
        if not self._why:
            self._why, self.locked_out = why, locked_out
            self._inbox.end()


def _withdrawn(posts: Mapping[bytes, _Post], message: RawObject) -> bool:
    """Nobody waits for its answer, so its POST ends; in the modern era nothing else is to be said.
    Was that all?"""
    params = RawObject.parse(message.get("params") or b"{}")
    post = posts.get(params.get("requestId") or b"")
    if post is None:
        return False
    post.task.cancel()
    return post.modern


def open_link(
    address: Address, max_bytes: int = MAX_LINE_BYTES, auth: "httpx2.Auth | None" = None
) -> HttpLink:
    """A link to a server, let in by `auth` where that is given. Nothing is sent yet.

    Raises:
        ValueError: the address is none.
    """
    import httpx2

    parts = urlsplit(address.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{address.shown!r} is no http or https address")
    client = httpx2.AsyncClient(
        headers=dict(address.headers),
        auth=auth,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
        follow_redirects=False,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=32),
    )
    return HttpLink(address, client, max_bytes)


def _why(shown: str, error: Exception) -> str:
    """What became of a request to an address, as it may be shown."""
    if isinstance(error, LoginNeeded):
        return str(error)
    return f"{shown} cannot be reached: {_told(error)}"


def _told(error: Exception) -> str:
    """What went wrong; errors of the status cite the whole address."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP {response.status_code}"
    return str(error) or type(error).__name__


def _greeted(session: dict[str, str], response: "httpx2.Response", body: bytes) -> None:
    """Note the session that the answer to `initialize` began."""
    if session or not (found := _VERSION.search(body[:65536])):
        return
    session["mcp-protocol-version"] = found.group(1).decode()
    if name := response.headers.get(_SESSION):
        session[_SESSION] = name


def _same_origin(url: str, given: str) -> str:
    """Where the server wants messages, which has to be itself.

    Raises:
        ValueError: it is somewhere else.
    """
    target = urljoin(url, given.strip())
    if urlsplit(target)[:2] != urlsplit(url)[:2]:
        raise ValueError(f"it wants messages sent to {target[:200]}")
    return target
