"""The tables of memories in PostgreSQL, version 15 or later, without any extension.

    tenant ──< scope ──< memory >── posting      words of a memory, by stem
                            ├──< about           exact joins with files and symbols
                            └──< memory_trigger  the situations at which a memory is said
    term, anchor            number of memories of a scope with a stem, with a key
    null_score              null scores of each scope
    trash                   deleted memories, kept for 30 days

Every key begins with the tenant, so the tables can be partitioned or distributed by it. No table
has a sequence: a tenant's number is the hash of its name, and a memory's number counts within its
project. A memory's number holds the number of its project's scope in its high bits
(`memory/lookups.py: SEQUENCE_BITS`), so that the memories of a project are a range.

Row-level security is the second wall between tenants: every statement sees only the rows of the
tenant that its transaction has named.
"""

import hashlib

TENANT_SETTING = "upwell.tenant"
LOCK = 0x75_70_77_65_6C_6C
"""The advisory lock under which tables are changed, so that processes that start at the same time
take turns.
"""

TABLES_OF_A_TENANT = (
    "tenant",
    "scope",
    "memory",
    "posting",
    "term",
    "anchor",
    "about",
    "memory_trigger",
    "null_score",
    "trash",
)

_CREATE = (
    """CREATE TABLE upwell.tenant (
        tenant bigint PRIMARY KEY, name text COLLATE "C" NOT NULL UNIQUE,
        version bigint NOT NULL DEFAULT 0)""",
    """CREATE TABLE upwell.scope (
        tenant bigint, no integer, project text COLLATE "C" NOT NULL,
        memories bigint NOT NULL DEFAULT 0, words bigint NOT NULL DEFAULT 0,
        tokens bigint NOT NULL DEFAULT 0, last bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (tenant, no), UNIQUE (tenant, project))""",
    """CREATE TABLE upwell.memory (
        tenant bigint, n bigint, id text COLLATE "C" NOT NULL,
        namespace text COLLATE "C" NOT NULL, text text NOT NULL, raw bytea,
        tags text NOT NULL, paths text NOT NULL, symbols text NOT NULL,
        project text COLLATE "C" NOT NULL, source text NOT NULL,
        first_line integer, last_line integer, door text NOT NULL, server text NOT NULL,
        tool text NOT NULL, session text NOT NULL, trust text NOT NULL, pinned boolean NOT NULL,
        supersedes text COLLATE "C", expires_at double precision,
        content_hash text COLLATE "C" NOT NULL, created_at double precision NOT NULL,
        updated_at double precision NOT NULL, viewed_at double precision,
        triggers text NOT NULL, occurrences integer NOT NULL,
        extra text NOT NULL, keys text NOT NULL, is_turn boolean NOT NULL,
        PRIMARY KEY (tenant, n), UNIQUE (tenant, id))""",
    "CREATE INDEX memory_hash ON upwell.memory (tenant, content_hash)",
    "CREATE INDEX memory_created ON upwell.memory (tenant, created_at DESC, n DESC)",
    "CREATE INDEX memory_expiry ON upwell.memory (tenant, expires_at) WHERE expires_at IS NOT NULL",
    "CREATE INDEX memory_pinned ON upwell.memory (tenant, n) WHERE pinned",
    """CREATE INDEX memory_supersedes ON upwell.memory (tenant, supersedes)
        WHERE supersedes IS NOT NULL""",
    """CREATE TABLE upwell.posting (
        tenant bigint, stem text COLLATE "C", n bigint,
        frequency real NOT NULL, length integer NOT NULL,
        PRIMARY KEY (tenant, stem, n) INCLUDE (frequency, length))""",
    """CREATE TABLE upwell.term (
        tenant bigint, stem text COLLATE "C", scope integer, memories bigint NOT NULL,
        PRIMARY KEY (tenant, stem, scope))""",
    """CREATE TABLE upwell.anchor (
        tenant bigint, key text COLLATE "C", scope integer, memories bigint NOT NULL,
        PRIMARY KEY (tenant, key, scope))""",
    """CREATE TABLE upwell.about (
        tenant bigint, key text COLLATE "C", n bigint, PRIMARY KEY (tenant, key, n))""",
    """CREATE TABLE upwell.memory_trigger (
        tenant bigint, trigger text COLLATE "C", n bigint, PRIMARY KEY (tenant, trigger, n))""",
    """CREATE TABLE upwell.null_score (
        tenant bigint, scope integer, words integer, mean double precision NOT NULL,
        spread double precision NOT NULL, memories bigint NOT NULL,
        PRIMARY KEY (tenant, scope, words))""",
    """CREATE TABLE upwell.trash (
        tenant bigint, id text COLLATE "C", deleted_at double precision NOT NULL,
        memory text NOT NULL, PRIMARY KEY (tenant, id))""",
    *(
        statement
        for table in TABLES_OF_A_TENANT
        for statement in (
            f"ALTER TABLE upwell.{table} ENABLE ROW LEVEL SECURITY",
            # The owner of the tables is held to the policy too.
            f"ALTER TABLE upwell.{table} FORCE ROW LEVEL SECURITY",
            # As a subquery, the setting is read once per statement, not once per row.
            f"CREATE POLICY of_tenant ON upwell.{table} USING (tenant = "
            f"(SELECT nullif(current_setting('{TENANT_SETTING}', true), '')::bigint))",
        )
    ),
)

MIGRATIONS = (_CREATE,)
"""The migrations of the tables, oldest first; each is a list of statements."""


def tenant_number(name: str) -> int:
    """Return the number of a tenant: 63 bits of the SHA-256 of its name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) >> 1
