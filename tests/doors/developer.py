"""A developer's machine with a copy of the team's memories, and the team's database to compare."""

import json
import subprocess
import sys
import time
from pathlib import Path

import psycopg

from tests.doors.hook_events import HOSTS
from tests.doors.hooked import PATIENCE, House
from tests.doors.replicas import Replica
from tests.postgres import APPLICATION

SOON_SECONDS = 30.0
IN_TIME = dict.fromkeys(PATIENCE)
"""Removes the variables of `PATIENCE`, so that the defaults hold: 200 ms for a prompt."""
FERRY = "The ferry timetable is published on Mondays by the harbour master"
QUESTION = "Who publishes the ferry timetable on Mondays?"


class Developer(House):
    """A house whose repository is a clone, with a copy of the team's memories."""

    def __init__(self, folder: Path, url: str, **settings: str) -> None:
        folder.mkdir()
        super().__init__(folder)
        remote = "git@github.com:acme/shop.git"
        (self.project / ".git/config").write_text(f'[remote "origin"]\n\turl = {remote}\n')
        self.environment |= {"UPWELL_STORE__URL": url, "UPWELL_STORE__LOCAL": "true", **settings}

    def prompt(self, session: str, text: str = QUESTION) -> tuple[str, float]:
        """The context that the hook adds to a prompt within the default deadline, and how many
        seconds the hook took."""
        prompt = HOSTS["claude"].prompt
        assert prompt is not None
        event = {**prompt(str(self.project), text), "session_id": session}
        answer = self.hook("claude", event=event, env=IN_TIME)
        assert answer.code == 0
        assert answer.err == b""
        added = answer.json.get("hookSpecificOutput", {}).get("additionalContext", "")
        return added, answer.seconds

    def hears(self, session: str, words: str) -> bool:
        """Whether prompts soon get these words. The first one tells the daemon which project to
        copy."""
        end = time.monotonic() + SOON_SECONDS
        for number in range(1_000):
            if words in self.prompt(f"{session} {number}")[0]:
                return True
            if time.monotonic() > end:
                return False
            time.sleep(0.2)
        return False

    def team(self, *args: str, token: str = "") -> "subprocess.CompletedProcess[bytes]":
        """`upwell team`, with a token on its stdin."""
        return subprocess.run(
            [sys.executable, "-P", "-m", "upwell", "team", *args],
            input=f"{token}\n".encode(),
            env=self.environment,
            cwd=self.project,
            capture_output=True,
            timeout=60,
        )

    def team_row(self) -> dict[str, object]:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "upwell", "doctor", "--json"],
            env=self.environment,
            cwd=self.project,
            capture_output=True,
            timeout=60,
        )
        row = json.loads(done.stdout)["parts"]["team"]
        assert isinstance(row, dict)
        return row


def stored(url: str) -> list[tuple[str, str]]:
    """The id and text of every memory of the team."""
    with psycopg.connect(url.replace(APPLICATION, "postgres")) as connection:
        rows = connection.execute("SELECT id, text FROM upwell.memory ORDER BY id").fetchall()
    return [(id, text) for id, text in rows]


def stores_of(url: str, id: str) -> int:
    """How many statements have stored this memory."""
    with psycopg.connect(url.replace(APPLICATION, "postgres")) as connection:
        sql = "SELECT count(*) FROM upwell.audit WHERE action = 'store' AND subject = %s"
        row = connection.execute(sql, [id]).fetchone()
    assert row is not None
    return int(row[0])


def token_of(replica: Replica, name: str, *more: str) -> str:
    """A new token for somebody, made as the owner of the gateway makes it."""
    command = [sys.executable, "-m", "upwell", "token", "add", name, *more]
    done = subprocess.run(
        command, env=replica.environment, capture_output=True, timeout=60, check=True
    )
    return done.stdout.decode().strip()
