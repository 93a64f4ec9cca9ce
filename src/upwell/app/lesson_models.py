"""The models that write lessons: that of the agent that held the session, or the endpoint."""

import shutil
from collections.abc import Callable
from pathlib import Path

from upwell.app.lesson_queue import LessonQueue
from upwell.app.lessons import LessonReader, Model
from upwell.config import Config
from upwell.ground.clock import Clock
from upwell.ground.invocation import Invocation
from upwell.ground.llm import OpenAIChat
from upwell.ground.pause import HEADLESS_FOLDER
from upwell.ground.ttl_store import TtlStore
from upwell.hosts import HOSTS
from upwell.hosts.base import Host
from upwell.hosts.headless import Headless, HeadlessQuestion, server_names
from upwell.hosts.installation import Installation
from upwell.memory.library import Library
from upwell.usage.counts import Counts
from upwell.usage.prices import FREE, prices_of
from upwell.wire.headless import HeadlessChat

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
        installation = Installation(user_folder=Path.home(), environment=environment, command=())

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


def lessons_by(
    models: Models | None,
    config: Config,
    library: Library,
    ttl_store: TtlStore,
    counts: Counts,
    clock: Clock,
) -> LessonReader:
    """The lessons of a home, written by these models, or by none."""
    return LessonReader(
        library,
        ttl_store,
        counts,
        config.lessons,
        models.of if models else _no_model,
        is_excluded=config.projects.excludes,
        clock=clock,
    )


def _no_model(host: str) -> None:
    """Return None, for every host."""
    del host


def queue_of(config: Config, lessons: Callable[[Models], LessonReader]) -> LessonQueue:
    """The sessions whose lessons are due, for a home in which a model writes lessons."""
    models = Models(config)
    return LessonQueue(lessons(models), models.close)
