"""Writes the history of two memories with mem0's own code. Arguments: mem0's history module, and
the database to write."""

import sys
from importlib.util import module_from_spec, spec_from_file_location

spec = spec_from_file_location("storage", sys.argv[1])
assert spec
assert spec.loader
storage = module_from_spec(spec)
spec.loader.exec_module(storage)
history = storage.SQLiteManager(sys.argv[2])
NOON, ONE = "2025-07-20T12:00:00+00:00", "2025-07-20T13:00:00+00:00"
history.add_history("a", None, "Uses npm", "ADD", created_at=NOON)
history.add_history("a", "Uses npm", "Uses pnpm", "UPDATE", created_at=NOON, updated_at=ONE)
history.add_history("b", None, "Uses make", "ADD", created_at=NOON)
history.add_history("b", "Uses make", None, "DELETE", created_at=NOON, updated_at=ONE, is_deleted=1)
