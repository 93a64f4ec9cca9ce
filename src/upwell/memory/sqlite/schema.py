"""The tables of `memory.db` that hold memories, and their indexes.

    scope ──< memory >── words (FTS5)      a memory's number `n` holds tenant, project and sequence
                │                          in one integer: the memories of a project are a range
                ├──< about >── anchor      exact joins with files and symbols
                ├──< memory_trigger        the situations in which a memory surfaces
                └── term                   how many memories in a scope contain a stem
    background                             null scores of each scope
    trash                                  deleted memories, kept for 30 days

`words`, `anchor`, `about`, `memory_trigger` and `term` are derived from `memory` and can be
rebuilt. Two columns of `memory` are also derived. `extra` contains words that are not separate
words of the text, such as the parts of an identifier, and `keys` contains join keys, one per line.
Both are stored so that searches do not have to derive them for every candidate.
"""

import sqlite3

from upwell.memory.stems import TOKENIZER

PROJECT_BITS = 18
"""The number of bits that identify the project in a memory's number. Of the number's 63 bits, 34
are for the sequence within the project (`memory/lookups.py: SEQUENCE_BITS`), 18 for the project and
the rest for the tenant. This allows 17 billion memories per project, 262,143 projects per tenant,
and 2,047 tenants."""


def create(db: sqlite3.Connection) -> None:
    """Create the tables in an empty file."""
    for statement in (
        """CREATE TABLE scope (
            no INTEGER PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL,
            memories INTEGER NOT NULL DEFAULT 0, words INTEGER NOT NULL DEFAULT 0,
            last INTEGER NOT NULL DEFAULT 0, UNIQUE (tenant, project))""",
        """CREATE TABLE memory (
            n INTEGER PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL,
            namespace TEXT NOT NULL, text NOT NULL, tags TEXT NOT NULL,
            paths TEXT NOT NULL, symbols TEXT NOT NULL, project TEXT NOT NULL,
            source TEXT NOT NULL, first_line INTEGER, last_line INTEGER,
            door TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL, session TEXT NOT NULL,
            trust TEXT NOT NULL, pinned INTEGER NOT NULL, supersedes TEXT, expires_at REAL,
            content_hash TEXT NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL,
            viewed_at REAL, extra TEXT NOT NULL, keys TEXT NOT NULL, UNIQUE (tenant, id))""",
        "CREATE INDEX memory_hash ON memory (content_hash)",
        "CREATE INDEX memory_created ON memory (created_at)",
        "CREATE INDEX memory_expiry ON memory (expires_at) WHERE expires_at IS NOT NULL",
        "CREATE INDEX memory_pinned ON memory (n) WHERE pinned",
        "CREATE INDEX memory_supersedes ON memory (supersedes) WHERE supersedes IS NOT NULL",
        f"""CREATE VIRTUAL TABLE words USING fts5 (
            body, extra, content = '', tokenize = '{TOKENIZER}')""",
        "INSERT INTO words (words, rank) VALUES ('rank', 'bm25(1.0, 0.5)')",
        """CREATE TABLE term (
            stem TEXT NOT NULL, scope INTEGER NOT NULL, memories INTEGER NOT NULL,
            PRIMARY KEY (stem, scope)) WITHOUT ROWID""",
        """CREATE TABLE anchor (
            no INTEGER PRIMARY KEY, scope INTEGER NOT NULL, key TEXT NOT NULL,
            memories INTEGER NOT NULL DEFAULT 0, UNIQUE (key, scope))""",
        """CREATE TABLE about (
            anchor INTEGER NOT NULL, n INTEGER NOT NULL,
            PRIMARY KEY (anchor, n)) WITHOUT ROWID""",
        """CREATE TABLE background (
            key INTEGER NOT NULL, words INTEGER NOT NULL, mean REAL NOT NULL,
            spread REAL NOT NULL, memories INTEGER NOT NULL,
            PRIMARY KEY (key, words)) WITHOUT ROWID""",
        """CREATE TABLE trash (
            tenant TEXT NOT NULL, id TEXT NOT NULL, deleted_at REAL NOT NULL,
            memory TEXT NOT NULL, PRIMARY KEY (tenant, id)) WITHOUT ROWID""",
    ):
        db.execute(statement)


def add_triggers(db: sqlite3.Connection) -> None:
    """Add the columns `triggers` and `occurrences`. `triggers` are the situations in which a memory
    surfaces, not SQL triggers. `occurrences` is the number of sessions that led to the
    memory."""
    db.execute("ALTER TABLE memory ADD COLUMN triggers NOT NULL DEFAULT '[]'")
    db.execute("ALTER TABLE memory ADD COLUMN occurrences NOT NULL DEFAULT 1")
    db.execute(
        """CREATE TABLE memory_trigger (
            trigger TEXT NOT NULL, n INTEGER NOT NULL,
            PRIMARY KEY (trigger, n)) WITHOUT ROWID"""
    )


MIGRATIONS = (create, add_triggers)
"""The migrations of the tables, oldest first."""
