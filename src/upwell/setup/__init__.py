"""Setting things up: servers, settings, logins."""
