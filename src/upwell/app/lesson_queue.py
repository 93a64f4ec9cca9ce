"""The sessions whose lessons are due. The daemon has a model read each in the background, once the
session has ended or has been idle for a while; no hook waits for it. What is due survives a restart
of the daemon. The model is that of the agent that held the session, or the endpoint.
"""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, convert
from msgspec.structs import asdict, replace

from upwell.app.lessons import (
    BUSY,
    OVER_BUDGET,
    LessonGain,
    LessonReader,
    Model,
    SessionRead,
    digest,
    sessions_of,
)
from upwell.config import Config
from upwell.ground.background import Breaker
from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError, UpwellError, UsageError
from upwell.ground.llm import Invocation, OpenAIChat
from upwell.ground.pause import HEADLESS_FOLDER
from upwell.ground.trace import LOG
from upwell.hosts import HOSTS
from upwell.hosts.base import Headless, HeadlessQuestion, Host, server_names
from upwell.hosts.events import EventKind, HostEvent
from upwell.hosts.installation import Installation
from upwell.replay.transcripts import own_bytes, transcripts_at, transcripts_of_user
from upwell.usage.report import FREE, prices_of
from upwell.wire.headless import HeadlessChat

IDLE_SECONDS = 900.0
"""A session counts as ended if its transcript has not changed for this long."""
UNKNOWN_SECONDS = 3_600.0
"""How long to wait for the end of a session whose transcript is not known."""
LOOK_SECONDS = 60.0
MAX_TRIES = 3
_FAILURES, _RESET_SECONDS = 2, 1_800.0


class DueSession(Struct, frozen=True, kw_only=True):
    """A session to read. `transcript` is "" if the host does not tell it. `has_ended`: the host
    said so. `noted_at` is when the session became due. `tries` counts failures of the model."""

    session: str
    transcript: str
    has_ended: bool = False
    noted_at: float = 0.0
    tries: int = 0

    @property
    def key(self) -> str:
        return digest(self.session, self.transcript)


class LessonQueue:
    """Notes which sessions are due, and reads them while `run()` runs. `close()` is called when it
    ends, to stop a model that is still answering."""

    def __init__(
        self,
        lessons: LessonReader,
        close: Callable[[], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._lessons = lessons
        self._records = lessons.records
        self._close = close
        self._clock = clock
        self._noted: set[DueSession] = set()
        self._breaker = Breaker(_FAILURES, _RESET_SECONDS, clock)
        self._wake = asyncio.Event()

    async def note(self, event: HostEvent) -> None:
        """Note the session of an event at the end of a turn or a session."""
        if event.agent or not event.session:
            return
        has_ended = event.kind is EventKind.END
        due = DueSession(session=event.session, transcript=event.transcript, has_ended=has_ended)
        if due not in self._noted:
            noted = replace(due, noted_at=self._clock.now())
            try:
                await self._records.put_due(due.key, asdict(noted))
            except StoreError as error:
                LOG.warning("the lessons of a session are not due: %s", error)
                return
            self._noted.add(due)
        if has_ended:
            self._wake.set()

    async def run(self) -> None:
        """Read what is due, until cancelled."""
        try:
            while True:
                self._wake.clear()
                try:
                    await self.read_due()
                except (UpwellError, OSError) as error:
                    LOG.warning("lessons: %s", error)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._wake.wait()
        finally:
            self._close()

    async def read_due(self) -> LessonGain:
        """Read each session that is due and has ended, in the order in which they became due."""
        gain = LessonGain()
        for value in await self._records.due():
            due = convert(value, DueSession)
            if not self._has_ended(due):
                continue
            if gain.is_over_budget or not self._breaker.allow():
                break
            try:
                await self._read(due, gain)
            except (UpwellError, OSError):
                raise
            except Exception as error:
                # A transcript is untrusted. One that cannot be read must not hold up those behind.
                LOG.error("the session %s teaches no lessons", due.session, exc_info=error)
                await self._records.drop_due(due.key)
        return gain

    async def _read(self, due: DueSession, gain: LessonGain) -> None:
        faults, waiting = len(gain.faults), gain.skipped[OVER_BUDGET] + gain.skipped[BUSY]
        sessions = await asyncio.to_thread(lambda: list(_sessions_of(due)))
        for session in sessions:
            await self._lessons.read(session, gain)
        if len(gain.faults) > faults:
            self._breaker.fail()
            if due.tries + 1 < MAX_TRIES:
                await self._records.put_due(due.key, asdict(replace(due, tries=due.tries + 1)))
                return
        elif gain.skipped[OVER_BUDGET] + gain.skipped[BUSY] > waiting:
            return
        else:
            self._breaker.succeed()
        await self._records.drop_due(due.key)
        # A later turn of the same session makes it due again.
        self._noted = {noted for noted in self._noted if noted.key != due.key}

    def _has_ended(self, due: DueSession) -> bool:
        if due.has_ended:
            return True
        if not due.transcript:
            return self._clock.now() - due.noted_at >= UNKNOWN_SECONDS
        try:
            changed_at = os.stat(due.transcript).st_mtime
        except OSError:
            return True
        return self._clock.now() - changed_at >= IDLE_SECONDS


def _sessions_of(due: DueSession) -> Iterator[SessionRead]:
    """The session as its transcript has it. A host that does not tell the transcript has the
    session's id in the file's name, or one database."""
    paths = [Path(due.transcript)]
    if not due.transcript:
        known = [each.path for each in transcripts_of_user(Path.home(), Path.home(), None)]
        paths = [path for path in known if due.session in str(path) or path.suffix == ".db"]
    for path in filter(own_bytes, map(str, paths)):
        try:
            (transcript,) = transcripts_at([Path(path)])
            sessions = sessions_of(transcript)
        except (UsageError, OSError) as error:
            LOG.info("a session was not read for lessons: %s", error)
            continue
        for session in sessions:
            if session.name == due.session or due.transcript:
                yield session


SAME_VENDOR = {"vscode": "copilot"}
"""Hosts that cannot be asked themselves, and the host with the same account."""


class Models:
    """The model for each session. Close it to end a run."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._chats: dict[str, HeadlessChat] = {}

    def of(self, host: str) -> Model | None:
        """The model for a session that `host` held; None if there is none. With `lessons.model =
        "agent"`, the endpoint is asked only if the host has no program on this machine."""
        if self._config.lessons.model == "agent" and (model := self._headless(host)):
            return model
        if self._config.lessons.model and self._config.llm.base_url:
            llm = self._config.llm
            return Model(
                chat=OpenAIChat(llm),
                name=llm.model or llm.base_url,
                prices=prices_of(llm.model) or FREE,
            )
        return None

    def close(self) -> None:
        """End the present run, and refuse further ones."""
        for chat in self._chats.values():
            chat.close()

    def _headless(self, name: str) -> Model | None:
        host = HOSTS.get(SAME_VENDOR.get(name, name))
        if host is None or host.headless is None:
            return None
        if host.name not in self._chats:
            path = self._config.environment.get("PATH")
            program = shutil.which(host.headless.program, path=path)
            if program is None:
                return None
            self._chats[host.name] = self._chat(host, host.headless, program)
        return Model(chat=self._chats[host.name], name=host.headless.program, is_agent=True)

    def _chat(self, host: Host, headless: Headless, program: str) -> HeadlessChat:
        environment = self._config.environment
        installation = Installation.of_user(environment)

        def invoke(system: str, folder: Path) -> Invocation:
            question = HeadlessQuestion(
                system=system,
                model=headless.model,
                folder=folder,
                servers=server_names(headless.servers or host.servers, installation),
            )
            return headless.invoke(question)

        folder = self._config.home.root / HEADLESS_FOLDER
        return HeadlessChat(program, invoke, headless.answer, folder, environment)
