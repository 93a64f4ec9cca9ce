"""Setting things up: servers, and later hosts."""
