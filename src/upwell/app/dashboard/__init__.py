"""The data for the dashboard's pages, and the actions behind its buttons."""
