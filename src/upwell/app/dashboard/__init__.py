"""The data of the dashboard's pages, and the actions of its buttons."""
