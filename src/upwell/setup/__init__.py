"""Sets up servers, settings and logins."""
